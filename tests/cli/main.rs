//! The built binary, driven as a person would drive it.

mod algorithms;
mod attack;
mod benchmarks;
mod browser;
mod calibrate;
mod check;
mod compare;
mod data;
mod disks;
mod errors;
mod eval;
mod extract;
mod fetched_rules;
mod filter;
mod foreign;
#[path = "../golden.rs"]
mod golden;
mod guide;
mod host;
mod index;
mod judge;
mod mcp;
mod model;
mod own_model;
mod pages;
mod playground;
mod plugins;
mod real_text;
mod replaced;
mod reproduce;
mod score;
mod scripts;
mod serve;
#[path = "../../host/http/tests/served/mod.rs"]
mod served;
mod shards;
mod train;
mod transcript;

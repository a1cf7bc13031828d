//! Loads reward rules, checks them, limits them and runs them.
//!
//! A rule is a WebAssembly file written by someone else. [`Rule::load`] takes what `cargo build
//! --target wasm32-unknown-unknown` made, or a ready component, and refuses everything that does
//! not speak the contract in `wit/`. [`Rule`] then judges sentences
//! ([`corver_core::SentenceScorer`]): in a fresh instance for every batch, within
//! [`Limits`], answering its questions about the corpus round by round. A rule that breaks the contract ends in a
//! [`RuleError`] that names it; never in a silent zero.

mod admit;
mod bindings;
mod cache;
mod check;
mod compiler;
mod conformance;
mod engine;
mod error;
mod instance;
mod limits;
mod plugin;
mod questions;
mod response;
mod rounds;
mod sentence;

pub use admit::Kind;
pub use compiler::{Compiler, compile_as_child};
pub use conformance::{Conformance, NotConformant, ResponseConformance};
pub use corver_settings::Limits;
pub use error::RuleError;
pub use instance::Manifest;
pub use plugin::{LoadOptions, Plugin, ResponseRule, Rule, Sandbox};

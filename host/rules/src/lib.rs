//! Loads, checks and runs reward rules, within limits.
//!
//! A rule is an untrusted WebAssembly file. [`Rule::load`] accepts a module, as `cargo build
//! --target wasm32-unknown-unknown` makes it, or a component. It rejects a file that does not
//! implement the contract in `wit/`.
//!
//! [`Rule`] scores sentences ([`corver_core::SentenceScorer`]), and [`ResponseRule`] grades
//! completions. Each batch runs in fresh instances within [`Limits`]. In each round the host answers
//! the rule's requests. If a rule breaks the contract, the batch fails with a [`RuleError`] that
//! names it; its rewards never become 0 silently.

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
mod requests;
mod response;
mod rounds;
mod sentence;

pub use admit::{PluginKind, Provenance};
pub use compiler::{Compiler, compile_as_child};
pub use conformance::{Conformance, ConformanceError, ResponseConformance};
pub use corver_settings::Limits;
pub use error::RuleError;
pub use instance::Manifest;
pub use plugin::{LoadOptions, Plugin, PluginFile, ResponseRule, Rule, Sandbox};

//! Loads reward rules, checks them, limits them and runs them.
//!
//! A rule is a WebAssembly file written by somebody else. [`Rule::load`] takes what `cargo build --target
//! wasm32-unknown-unknown` made, or a ready component, and refuses everything that does not speak the contract in
//! `wit/`. [`Rule`] then judges sentences ([`corver_core::Rules`]): in a fresh instance for every batch, within
//! [`Limits`], answering its questions about the corpus round by round. A rule that breaks the contract ends in a
//! [`RuleError`] that names it; never in a silent zero.

mod admit;
mod answers;
mod check;
mod compile;
mod conformance;
mod error;
mod judge;
mod limits;
mod plugin;
mod response_rule;
mod rule;
mod v0_5;

pub use admit::Kind;
pub use conformance::{Conformance, NotConformant, ResponseConformance};
pub use error::{Fault, RuleError};
pub use limits::Limits;
pub use plugin::{LoadOptions, Manifest, Plugin, ResponseRule, Rule, Sandbox};

//! Opens the parts of the reward from settings, and scores completions with them.
//!
//! ```text
//! settings ─▶ config ─▶ parts ─▶ scorer ─▶ returns, or unsupported sentences
//! ```
//!
//! [`config`] resolves [`corver_settings::Settings`] into the parts that a command needs, [`parts`]
//! opens them, and a [`Scorer`] runs them. Errors are [`anyhow`]'s: messages for the author of the
//! settings.

pub mod check;
pub mod config;
pub mod folders;
pub mod parts;
mod passages;
pub mod plugin;
mod scorer;

pub use config::{RewardConfig, resolve};
pub use passages::CorpusPassages;
pub use scorer::Scorer;

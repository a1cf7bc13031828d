//! From settings to the parts of the reward, each opened once, and from texts to what they earn.
//!
//! ```text
//! settings ─▶ config ─▶ parts ─▶ scorer ─▶ returns, or what is unsupported
//! ```
//!
//! [`config`] resolves [`corver_settings::Settings`] into the parts that a command needs; [`parts`] opens them; a [`Scorer`] puts them
//! to work. Errors are [`anyhow`]'s: they are messages for whoever wrote the settings.

pub mod check;
pub mod config;
pub mod folders;
pub mod parts;
mod passages;
pub mod plugin;
mod scorer;

pub use config::{RewardConfig, resolve};
pub use passages::Passages;
pub use scorer::Scorer;

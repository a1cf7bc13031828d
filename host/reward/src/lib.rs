//! From settings to the parts of the reward, each opened once, and from texts to what they earn.
//!
//! ```text
//! settings ─▶ config ─▶ parts ─▶ scorer ─▶ returns, or what is unsupported
//! ```
//!
//! [`settings`] merges files and single values, as they are written; [`config`] is what that means, resolved once; [`parts`] opens
//! what it names; a [`Scorer`] puts them to work. Errors are [`anyhow`]'s: they are messages for whoever wrote the settings.

pub mod check;
pub mod config;
pub mod folders;
pub mod hub;
pub mod parts;
mod passages;
pub mod plugin;
mod scorer;
pub mod settings;

pub use config::Config;
pub use passages::Passages;
pub use scorer::Scorer;
pub use settings::Settings;

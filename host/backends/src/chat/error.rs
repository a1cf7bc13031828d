//! Errors of a chat endpoint.

use std::path::PathBuf;

use corver_settings::InvalidSetting;

/// A failure of a [`ChatClient`](crate::chat::ChatClient). Replies that came before it are cached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChatError {
    /// A setting with a value that cannot work.
    #[error(transparent)]
    Setting(#[from] InvalidSetting),
    /// An address or key that cannot be used, or a prompt that no model can answer.
    #[error("{0}")]
    InvalidArgument(String),
    /// A refusal, a reply without the tokens that its price depends on, or no usable reply within
    /// the patience that the settings allow.
    #[error("{0}")]
    NoReply(String),
    /// A cost that has reached its ceiling.
    #[error(
        "{cost:.4} is spent of at most {max_cost} ({section}.max_cost); raise the ceiling to \
         continue (a run: with --resume), no request is sent twice"
    )]
    CostCeiling {
        /// Section of the settings that sets the ceiling.
        section: &'static str,
        /// Cost so far, including that of earlier processes.
        cost: f64,
        /// Ceiling, in the currency of the prices.
        max_cost: f64,
    },
    /// A cache file that cannot be read or written.
    #[error("failed to {action} the cached replies in {}: {source}", path.display())]
    Io {
        /// Verb of the call: "open", "create", …
        action: &'static str,
        /// Path of the cache file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
}

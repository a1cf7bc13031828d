//! Errors of a client of counts.

use std::path::PathBuf;

use corver_http::UrlError;
use corver_settings::InvalidSetting;

use crate::TokenError;

/// A failure of a [`Remote`](crate::Remote).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// The server has another index, or does not support the mode. The public API cannot express
    /// `exact` and `span`.
    #[error("{0}")]
    Unsuitable(String),
    /// The server's URL is invalid.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// A setting has an invalid value.
    #[error(transparent)]
    Setting(#[from] InvalidSetting),
    /// The token cannot be loaded.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The server understood the request and refuses it. A retry is of no use.
    #[error("{0}")]
    Refused(String),
    /// The server gave no usable reply, and the retries are exhausted.
    #[error("{0}")]
    Unavailable(String),
    /// A cache file cannot be used.
    #[error("failed to {action} the cache of counts {}: {source}", path.display())]
    Io {
        /// Verb of the operation: "open", "create", …
        action: &'static str,
        /// Path of the cache file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
}

//! Errors between two machines.

use std::path::PathBuf;

use corver_http::UrlError;
use corver_settings::InvalidSetting;

use crate::TokenError;

/// Every failure of a [`Remote`](crate::Remote).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// A server with another index than is asked for, or that does not count in this mode. The
    /// public API has no words for `exact` and `span`.
    #[error("{0}")]
    Unsuitable(String),
    /// An address of the server that cannot be used.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// A setting with a value that cannot work.
    #[error(transparent)]
    Setting(#[from] InvalidSetting),
    /// A token that cannot be used.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// A server that understood the request and will not answer it; asking again is of no use.
    #[error("{0}")]
    Refused(String),
    /// A server that gave no usable answer for as long as one is waited for.
    #[error("{0}")]
    GaveUp(String),
    /// A file of the cache that cannot be used.
    #[error("cannot {action} the cache of counts {}: {source}", path.display())]
    Io {
        /// Verb of the call: "open", "create", …
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
}

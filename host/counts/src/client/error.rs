//! What can go wrong between two machines.

use std::path::PathBuf;

use corver_corpus::Mode;
use corver_http::UrlError;
use corver_settings::InvalidSetting;

use crate::TokenError;

/// Every failure of a [`Remote`](crate::Remote).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// The server does not say that it counts in this mode. The public API has no words for `exact`
    /// and `span`.
    #[error(
        "{url} does not say that it counts in the mode `{}`, as `corver-host index serve` does; use `compatible`, or an index on this machine",
        format!("{mode:?}").to_lowercase()
    )]
    Mode {
        /// The server.
        url: String,
        /// The mode.
        mode: Mode,
    },
    /// The server has another index than the one that is asked for.
    #[error("{url} has the index {has}, not {index}: write it as {url}#{has}")]
    OtherIndex {
        /// The server.
        url: String,
        /// What is asked for.
        index: String,
        /// What it has.
        has: String,
    },
    /// The address of the server cannot be used.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// A setting has a value that cannot work.
    #[error(transparent)]
    Setting(#[from] InvalidSetting),
    /// The token that the settings or the environment name cannot be used.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The server understood the request and will not answer it; asking again is of no use.
    #[error("{url} refuses {request} on its index {index}: {message}")]
    Refused {
        /// The server.
        url: String,
        /// The index.
        index: String,
        /// What was asked.
        request: String,
        /// What the server said.
        message: String,
    },
    /// The server gave no usable answer for as long as one is waited for.
    #[error(
        "{url} did not answer {request} on its index {index} in {attempts} attempts and {seconds:.0} s; at last: {last}"
    )]
    GaveUp {
        /// The server.
        url: String,
        /// The index.
        index: String,
        /// What was asked.
        request: String,
        /// How often it was tried.
        attempts: u32,
        /// For how long.
        seconds: f64,
        /// How the last attempt failed.
        last: String,
    },
    /// A file of the cache cannot be used.
    #[error("cannot {action} the cache of counts {}: {source}", path.display())]
    Cache {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

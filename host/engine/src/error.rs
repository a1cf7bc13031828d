//! Errors with what the reader needs to change.

use std::path::PathBuf;

use corver_core::BoxError;
use corver_http::UrlError;
use corver_pretrained::PretrainedError;

/// Errors of an engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// An address that cannot be used.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// A key that would be seen, no folder for the adapters, or one that another run uses.
    #[error("{0}")]
    InvalidSettings(String),
    /// A server that gave no usable answer for as long as one is waited for.
    #[error("{0}")]
    Away(String),
    /// A server that understood and will not do it; asking again is of no use.
    #[error("the engine {url} refuses: {message}")]
    Refused {
        /// Address that was asked.
        url: String,
        /// Message of the server.
        message: String,
    },
    /// A server without the model, or that no longer has the adapter.
    #[error("{0}")]
    NoModel(String),
    /// Answers that no rollout can be made of, or an adapter that the server does not load: it has
    /// to be started otherwise.
    #[error("{0}")]
    Unusable(String),
    /// An adapter that cannot be written.
    #[error("writing the adapter {}", path.display())]
    WriteAdapter {
        /// Path of its folder.
        path: PathBuf,
        /// Error of its writer.
        source: BoxError,
    },
    /// A file, a prompt or a completion that cannot be read or written.
    #[error(transparent)]
    Pretrained(#[from] PretrainedError),
    /// A sampling that its watcher broke off.
    #[error("stopped, as asked")]
    Stopped,
}

/// Shorthand of this crate.
pub type Result<T> = std::result::Result<T, EngineError>;

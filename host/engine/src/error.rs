//! Errors of this crate.

use std::path::PathBuf;

use corver_core::BoxError;
use corver_http::UrlError;
use corver_pretrained::PretrainedError;

/// An error of an engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The address of the server cannot be used.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// A key would be sent unencrypted, or no folder for the adapters is free.
    #[error("{0}")]
    InvalidSettings(String),
    /// The server has not responded in time, in spite of retries.
    #[error("{0}")]
    Unreachable(String),
    /// The server refuses the request; a retry is useless.
    #[error("the engine {url} refuses: {message}")]
    Refused {
        /// Address of the request.
        url: String,
        /// Message of the server.
        message: String,
    },
    /// The server does not have the model, or has lost the adapter.
    #[error("{0}")]
    NoModel(String),
    /// The server must be started with other options: its replies are not rollouts, or it does not
    /// load an adapter.
    #[error("{0}")]
    Unusable(String),
    /// The adapter cannot be written into the folder `path`.
    #[error("failed to write the adapter {}", path.display())]
    WriteAdapter {
        /// Folder of the adapter.
        path: PathBuf,
        /// Error of the policy.
        source: PartError,
    },
    /// A file, a prompt or a completion cannot be read or written.
    #[error(transparent)]
    Pretrained(#[from] PretrainedError),
    /// The caller's watch stopped sampling.
    #[error("stopped by the caller")]
    Stopped,
}

/// A result with an [`EngineError`].
pub type Result<T> = std::result::Result<T, EngineError>;

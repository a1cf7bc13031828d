//! Errors of making and replaying recordings.

use std::path::{Path, PathBuf};

/// A failure to record or to replay.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// A recording that already exists and is not overwritten.
    #[error(
        "the recording {} exists already: delete it, or take its answers with --replay",
        path.display()
    )]
    Exists {
        /// Path of the recording.
        path: PathBuf,
    },
    /// A recording that cannot be read or written.
    #[error("failed to {action} the recording {}: {source}", path.display())]
    Io {
        /// Verb of the call: "read" or "write".
        action: &'static str,
        /// Path of the recording.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A recording with a malformed line, with two replies to one request, or without the requested
    /// reply.
    #[error("{0}")]
    InvalidRecording(String),
}

impl RecordingError {
    /// Returns a function for `map_err` that adds verb and path to an operating system error.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl Fn(std::io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }
}

//! Errors of recording answers, and of using a recording.

use std::path::{Path, PathBuf};

/// Every failure of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// A recording that exists already, which is not overwritten.
    #[error("the recording {} exists already: delete it, or take its answers with --replay", path.display())]
    Exists {
        /// Path of the recording.
        path: PathBuf,
    },
    /// A recording that cannot be read or written.
    #[error("cannot {action} the recording {}: {source}", path.display())]
    Io {
        /// Verb of the call: "read" or "write".
        action: &'static str,
        /// Path of the recording.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// A recording with a line that is no answer, with two answers to one question, or without the
    /// one that is asked for.
    #[error("{0}")]
    InvalidRecording(String),
}

impl RecordingError {
    /// For `map_err` on system calls.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl Fn(std::io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }
}

use std::path::PathBuf;

use corver_runs::RunDirError;

/// Error while reading a run or writing a page.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// A file cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// Verb of the message: `read` or `write`.
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A file of the run's folder cannot be read, or is no valid JSON.
    #[error(transparent)]
    Run(#[from] RunDirError),
    /// A file of the run is malformed; the message has its path and line.
    #[error("{0}")]
    Damaged(String),
    /// The run, step or completion does not exist; the message lists those that do.
    #[error("{0}")]
    NotThere(String),
}

//! What can go wrong with the demo.

use std::path::PathBuf;

/// Why the demo cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemoError {
    /// A file or folder cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// Which one.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Its world is to answer wrongly less often than never, or more often than always.
    #[error("a rate of errors is from 0 to 1, not {got}")]
    ErrorRate {
        /// What was asked for.
        got: f64,
    },
}

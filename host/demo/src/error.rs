//! Errors of the demo.

use std::path::PathBuf;

/// A failure to unpack the demo or to configure its models.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemoError {
    /// A file or folder that cannot be written.
    #[error("failed to write {}: {source}", path.display())]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A rate of wrong answers that is not from 0 to 1.
    #[error("a rate of errors is from 0 to 1, not {got}")]
    ErrorRate {
        /// Rate of wrong answers, as configured.
        got: f64,
    },
}

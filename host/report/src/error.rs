use std::path::PathBuf;

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The file system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// `read` or `write`.
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// A file of the run cannot be understood; the message says where.
    #[error("{0}")]
    Damaged(String),
    /// There is no such run, step or completion; the message says which there are.
    #[error("{0}")]
    NotThere(String),
}

//! Errors of building and searching passages.

use std::path::{Path, PathBuf};

use tantivy::TantivyError;

/// A failure to build, open or search passages.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PassageError {
    /// An index of the corpus that cannot be read.
    #[error(transparent)]
    Corpus(#[from] corver_corpus::Error),
    /// Options that cannot work: no index, passages of no words, or a folder with other content.
    #[error("{0}")]
    InvalidArgument(String),
    /// Passages that are missing, stale, damaged or of another version, and must be built again.
    #[error("{0}")]
    InvalidPassages(String),
    /// A folder in which another process is building: the caller may wait for it.
    #[error("{} is locked: another process is making these passages", path.display())]
    Busy {
        /// Path of the folder of the unfinished build.
        path: PathBuf,
    },
    /// A search index that cannot be written.
    #[error("failed to {action} the passages in {}: {source}", path.display())]
    Write {
        /// Verb of the call: "create", "write", …
        action: &'static str,
        /// Path of the folder.
        path: PathBuf,
        /// Error of the search library.
        source: TantivyError,
    },
}

impl PassageError {
    /// Returns a function for `map_err` that adds verb and path to an operating system error.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let to_error = corver_corpus::Error::io(action, path);
        move |source| Self::Corpus(to_error(source))
    }
}

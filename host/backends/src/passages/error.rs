//! Errors with what to do about them.

use std::path::{Path, PathBuf};

use tantivy::TantivyError;

/// Every failure of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PassageError {
    /// An index of the corpus that cannot be read.
    #[error(transparent)]
    Corpus(#[from] corver_corpus::Error),
    /// Options that cannot work: no index, passages of no words, or a folder that holds something
    /// else.
    #[error("{0}")]
    InvalidArgument(String),
    /// Passages that are missing, stale, damaged or of another version: they have to be made anew.
    #[error("{0}")]
    InvalidPassages(String),
    /// A folder in which another process is at work: the caller may wait for it.
    #[error("{} is locked: another process is making these passages", path.display())]
    Busy {
        /// Path of the folder of the unfinished build.
        path: PathBuf,
    },
    /// An index of words that cannot be written.
    #[error("cannot {action} the passages in {}: {source}", path.display())]
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
    /// For `map_err`: an operating system error with what we were doing to which path.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let to_error = corver_corpus::Error::io(action, path);
        move |source| Self::Corpus(to_error(source))
    }
}

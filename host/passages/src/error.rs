//! Why there are no passages, and what to do about it.

use std::path::{Path, PathBuf};

use tantivy::TantivyError;

/// Every failure of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PassageError {
    /// The corpus's index cannot be read.
    #[error(transparent)]
    Corpus(#[from] corver_corpus::Error),
    /// No index is named.
    #[error("no index is named whose passages are to be searched")]
    NoIndex,
    /// A passage of no words.
    #[error("a passage of {words} words: it must have at least 1")]
    Words {
        /// What was asked for.
        words: usize,
    },
    /// They were not built yet.
    #[error("there are no passages in {}: make them with `{remedy}`", path.display())]
    Missing {
        /// Where they should lie.
        path: PathBuf,
        /// The command that makes them.
        remedy: String,
    },
    /// The corpus's index is another one by now.
    #[error("the passages in {} were made from another index than {} is now: make them anew with `{remedy}`", path.display(), index.display())]
    Stale {
        /// Where they lie.
        path: PathBuf,
        /// The index.
        index: PathBuf,
        /// The command that makes them anew.
        remedy: String,
    },
    /// Another version of this program made them.
    #[error("the passages in {} are {got}, but this program reads {expected}: make them anew with `{remedy}`", path.display())]
    Version {
        /// Where they lie.
        path: PathBuf,
        /// Format and version found.
        got: String,
        /// Format and version understood.
        expected: String,
        /// The command that makes them anew.
        remedy: String,
    },
    /// A file is missing, of another size, or holds nonsense.
    #[error("the passages in {} are damaged: {problem}; make them anew with `{remedy}`", path.display())]
    Damaged {
        /// Where they lie.
        path: PathBuf,
        /// What is wrong.
        problem: String,
        /// The command that makes them anew.
        remedy: String,
    },
    /// Something else lies where the passages would go.
    #[error("{} exists and holds no passages: remove it, or put the passages elsewhere", path.display())]
    InTheWay {
        /// The folder.
        path: PathBuf,
    },
    /// Another process is at it.
    #[error("{} is locked: another process is making these passages", path.display())]
    Busy {
        /// The folder of the unfinished build.
        path: PathBuf,
    },
    /// The index of words cannot be written.
    #[error("cannot {action} the passages in {}: {source}", path.display())]
    Write {
        /// What was tried.
        action: &'static str,
        /// The folder.
        path: PathBuf,
        /// What the library said.
        source: TantivyError,
    },
    /// The operating system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

impl PassageError {
    /// For `map_err`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }
}

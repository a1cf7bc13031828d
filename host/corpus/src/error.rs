//! Errors with the file, the value and the remedy.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use crate::token_width::TokenWidth;

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure to build, open, verify or query an index.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call of the operating system failed.
    #[error("failed to {action} {}: {source}", path.display())]
    Io {
        /// Verb of the operation: "open", "write", …
        action: &'static str,
        /// Path of the file or folder.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A batch of queries exceeded its deadline.
    #[error("deadline exceeded after {counted} of {queries} queries")]
    Deadline {
        /// Number of queries that were counted in time.
        counted: usize,
        /// Number of queries in the batch.
        queries: usize,
    },
    /// A query, a token id or an option is invalid: the caller has to change it.
    #[error("{0}")]
    InvalidArgument(String),
    /// The index is incomplete, damaged or of another version: rebuild it, or copy it again.
    #[error("{0}")]
    InvalidIndex(String),
    /// A document, an input file or a tokenizer is malformed.
    #[error("{0}")]
    InvalidInput(String),
    /// The output folder holds an index, a build or other files, another process is building in it,
    /// or it cannot be replaced.
    #[error("{0}")]
    OutputTaken(String),
    /// The build needs more memory than its budget.
    #[error("{0}")]
    OutOfMemory(String),
}

impl Error {
    /// Returns a function for `map_err` that adds the operation and its path to an error.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }

    /// Returns the error of a missing index file.
    pub(crate) fn missing(path: &Path) -> Self {
        Self::InvalidIndex(format!(
            "{} is missing: the index is incomplete; copy it again or rebuild it",
            path.display()
        ))
    }

    /// Returns the error of a file whose size contradicts the format, its neighbours or the
    /// manifest.
    pub(crate) fn size(path: &Path, bytes: u64, expected: impl Display) -> Self {
        Self::InvalidIndex(format!(
            "{}: {bytes} bytes, but {expected}: truncated, foreign or of another token width",
            path.display()
        ))
    }

    /// Returns the error of a file with an invalid entry (rank, document or token).
    #[cold]
    pub(crate) fn corrupt(path: &Path, entry: u64, got: u64, expected: &str) -> Self {
        Self::InvalidIndex(format!(
            "{}: entry {entry} is {got}, but {expected}: the file is damaged or foreign; rebuild \
             the index",
            path.display()
        ))
    }

    /// Returns the error of a file whose blake3 hash differs from the manifest's.
    pub(crate) fn checksum(path: &Path, got: &str, expected: &str) -> Self {
        Self::InvalidIndex(format!(
            "{}: checksum {got}, but the manifest says {expected}: the file was changed; rebuild \
             the index",
            path.display()
        ))
    }

    /// Returns the error of an index file with malformed JSON.
    pub(crate) fn json(path: &Path, error: &serde_json::Error) -> Self {
        Self::InvalidIndex(format!("{}: {error}", path.display()))
    }

    /// Returns the error of an option with an invalid value.
    pub(crate) fn option(option: &str, got: u64, expected: &str) -> Self {
        Self::InvalidArgument(format!("{option} = {got}: {expected}"))
    }

    /// Returns the error of a token id that does not fit the width of an index.
    pub(crate) fn token_too_large(token: u32, width: TokenWidth) -> Self {
        Self::InvalidArgument(format!(
            "token id {token} does not fit an index of {width} tokens (largest id: {})",
            width.largest_token()
        ))
    }

    /// Returns the error of a query whose `part` ("query", "clause" or "term") is empty.
    pub(crate) fn empty_query(part: &str) -> Self {
        Self::InvalidArgument(format!(
            "an empty {part}: write a query as `a AND b OR c`, with a word on each side"
        ))
    }

    /// Returns the error of a text that the tokenizer refuses.
    pub(crate) fn not_tokenised(error: impl Display) -> Self {
        Self::InvalidArgument(format!("failed to tokenise a text: {error}"))
    }

    /// Returns the error of an input file with an invalid line, numbered from 1.
    pub(crate) fn line(path: &Path, line: u64, problem: impl Display) -> Self {
        Self::InvalidInput(format!("{}, line {line}: {problem}", path.display()))
    }

    /// Returns the error of a file that is not a valid Parquet file.
    pub(crate) fn parquet(path: &Path, error: impl Display) -> Self {
        Self::InvalidInput(format!("{}: not a readable Parquet file: {error}", path.display()))
    }

    /// Returns the error of a memory budget that is too small.
    pub(crate) fn memory(budget: u64, needed: u64) -> Self {
        Self::OutOfMemory(format!(
            "a memory budget of {budget} bytes is too small: this takes at least {needed}"
        ))
    }
}

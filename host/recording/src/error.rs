//! Why answers cannot be recorded, or a recording not be used.

use std::path::PathBuf;

/// Every failure of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// There is one already, which is not overwritten.
    #[error("the recording {} exists already: delete it, or take its answers with --replay", path.display())]
    Exists {
        /// Which file.
        path: PathBuf,
    },
    /// The recording cannot be created or written.
    #[error("cannot write the recording {}: {source}", path.display())]
    Write {
        /// Which file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The recording cannot be read.
    #[error("cannot read the recording {}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A line is no question with its answer.
    #[error(
        "{}:{line}: {source}; a line is {{\"query\": {{\"all_of\": [[WORD, …], …]}}, \"occurrences\", \"exact\"}}, or has a \"kind\": \
         nli, chat or passages",
        path.display()
    )]
    Line {
        /// Which file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// Two lines answer one question differently.
    #[error("{}:{line}: {question} was answered differently before", path.display())]
    Conflict {
        /// Which file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// The question.
        question: String,
    },
    /// A question that was not asked when the recording was made.
    #[error("the recording {} does not hold {question}: record it with --record, where it can be answered", path.display())]
    NotHeld {
        /// Which file.
        path: PathBuf,
        /// The question.
        question: String,
    },
}

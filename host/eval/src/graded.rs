//! Files of graded answers, one JSON object per line: those that `eval --out` writes, and a run's
//! own.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

/// Why a file of graded answers cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GradedError {
    /// The file cannot be read.
    #[error("cannot read the answers {}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A line is not an answer.
    #[error("{}:{line}: {source}; these are the files that `eval --out` writes, and answers_raw.jsonl of a run", path.display())]
    Line {
        /// Which file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// What `T` takes of every line of such a file; line n is at place n − 1.
///
/// # Errors
/// A file that cannot be read, or a line that is no answer.
pub fn read_graded<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, GradedError> {
    let read = |source| GradedError::Read { path: path.to_owned(), source };
    let answer = |(index, line): (usize, std::io::Result<String>)| {
        let wrong = |source| GradedError::Line { path: path.to_owned(), line: index + 1, source };
        serde_json::from_str(&line.map_err(read)?).map_err(wrong)
    };
    BufReader::new(File::open(path).map_err(read)?).lines().enumerate().map(answer).collect()
}

//! Files of graded answers, one JSON object per line: those that `eval --out` writes, and those of a
//! run.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::de::DeserializeOwned;

/// Error of a file of graded answers: it cannot be read, or a line is no answer.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct GradedError(String);

/// Reads the fields of `T` from every line; line n is at index n − 1.
///
/// # Errors
/// Fails if the file cannot be read, or a line is no answer.
pub fn read_graded<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, GradedError> {
    let io_error =
        |error| GradedError(format!("cannot read the answers {}: {error}", path.display()));
    let file = BufReader::new(File::open(path).map_err(io_error)?);
    let mut answers = Vec::new();
    for (index, line) in file.lines().enumerate() {
        let line = line.map_err(io_error)?;
        answers.push(serde_json::from_str(&line).map_err(|error| {
            GradedError(format!(
                "{}:{}: {error}; these are the files that `eval --out` writes, and \
                 answers_before.jsonl of a run",
                path.display(),
                index + 1
            ))
        })?);
    }
    Ok(answers)
}

//! Files of graded answers, one JSON object per line: those that `eval --out` writes, and those of a
//! run.

use std::io::BufRead;
use std::path::Path;

use serde::de::DeserializeOwned;

use super::lines::{self, LinesError};

/// Content of the files, for messages.
const WHAT: &str = "answers";

/// Reads the fields of `T` from every line; line n is at index n − 1.
///
/// # Errors
/// Fails if the file cannot be read, or a line is no answer.
pub fn read_graded<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, LinesError> {
    let mut answers = Vec::new();
    for (index, line) in lines::open(path, WHAT)?.lines().enumerate() {
        let line = line.map_err(|error| LinesError::unreadable(path, WHAT, &error))?;
        answers.push(serde_json::from_str(&line).map_err(|error| {
            let problem = format!(
                "{error}; these are the files that `eval --out` writes, and answers_before.jsonl \
                 of a run"
            );
            LinesError::at_line(path, index + 1, &problem)
        })?);
    }
    Ok(answers)
}

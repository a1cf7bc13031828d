//! Files with one JSON value per line.

use std::io::{self, BufRead};
use std::path::Path;

use serde::de::DeserializeOwned;

/// Error of a file of JSON lines: it cannot be read, or a line is invalid.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LinesError(pub(crate) String);

impl LinesError {
    /// Returns the error of a file that cannot be read; `what` names its content.
    pub(crate) fn unreadable(path: &Path, what: &str, error: &io::Error) -> Self {
        Self(format!("cannot read the {what} {}: {error}", path.display()))
    }

    /// Returns the error of a line, counted from 1.
    pub(crate) fn at_line(path: &Path, number: usize, problem: &str) -> Self {
        Self(format!("{}:{number}: {problem}", path.display()))
    }
}

/// Opens a file; `what` names its content, for messages.
pub(crate) fn open(path: &Path, what: &str) -> Result<Box<dyn BufRead>, LinesError> {
    corver_files::open_text(path).map_err(|error| LinesError::unreadable(path, what, &error))
}

/// Calls `each` with the number, from 1, and the value of every line that is not empty. An error that
/// it returns gets the place of the line. Messages have `path`, `what` the file contains, and the
/// `form` of a line.
pub(crate) fn for_each_json_line<T: DeserializeOwned>(
    source: impl BufRead,
    path: &Path,
    what: &str,
    form: &str,
    mut each: impl FnMut(usize, T) -> Result<(), String>,
) -> Result<(), LinesError> {
    for (index, line) in source.lines().enumerate() {
        let text = line.map_err(|error| LinesError::unreadable(path, what, &error))?;
        if text.trim().is_empty() {
            continue;
        }
        let number = index + 1;
        serde_json::from_str(&text)
            .map_err(|error| format!("{error}; {form}"))
            .and_then(|value| each(number, value))
            .map_err(|problem| LinesError::at_line(path, number, &problem))?;
    }
    Ok(())
}

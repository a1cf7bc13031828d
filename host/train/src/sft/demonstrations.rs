//! Files of demonstrations, one JSON object per line: {"question", "completion"}.

use std::fmt::Display;
use std::io::BufRead;
use std::path::{Path, PathBuf};

use corver_core::Demonstration;
use serde::Deserialize;

/// Error of a file of demonstrations.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemonstrationsError {
    /// The file cannot be read.
    #[error("cannot read the demonstrations {}: {source}", path.display())]
    Io {
        /// Path of the demonstrations.
        path: PathBuf,
        /// Error of the file system.
        source: std::io::Error,
    },
    /// The file has no demonstration, or a line is invalid or too long; the message says which.
    #[error("{0}")]
    Invalid(String),
}

fn invalid(path: &Path, line: usize, problem: impl Display) -> DemonstrationsError {
    let path = path.display();
    DemonstrationsError::Invalid(format!("{path}, line {line}: {problem}"))
}

/// The demonstrations of a file, each with its line.
#[derive(Debug)]
pub struct Demonstrations {
    path: PathBuf,
    /// Line of each demonstration, counted from 1.
    lines: Vec<usize>,
    /// Demonstrations in the order of the file.
    pub all: Vec<Demonstration>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DemonstrationLine {
    question: String,
    completion: String,
}

impl Demonstrations {
    /// Reads a file; lines of white space are skipped.
    ///
    /// # Errors
    /// Fails if the file cannot be read or has no demonstration, or a line is no demonstration.
    pub fn read(path: &Path) -> Result<Self, DemonstrationsError> {
        let io_error = |source| DemonstrationsError::Io { path: path.to_owned(), source };
        let mut lines = Vec::new();
        let mut all = Vec::new();
        let file = corver_files::open_text(path).map_err(io_error)?;
        for (number, text) in file.lines().enumerate() {
            let text = text.map_err(io_error)?;
            let line = number + 1;
            if text.trim().is_empty() {
                continue;
            }
            let parsed = serde_json::from_str(&text);
            let DemonstrationLine { question, completion } = parsed.map_err(|error| {
                let form = "a line is {\"question\": …, \"completion\": …}";
                invalid(path, line, format!("{error}; {form}"))
            })?;
            for (what, part) in [("question", &question), ("completion", &completion)] {
                if part.trim().is_empty() {
                    return Err(invalid(path, line, format!("the {what} is empty")));
                }
            }
            lines.push(line);
            all.push(Demonstration { question, completion });
        }
        if all.is_empty() {
            let problem = format!("{} holds no demonstration", path.display());
            return Err(DemonstrationsError::Invalid(problem));
        }
        Ok(Self { path: path.to_owned(), lines, all })
    }

    /// Checks the length of each demonstration with its prompt. `lengths` and `limit` are in tokens.
    ///
    /// # Errors
    /// Fails at the first that is longer than the limit.
    pub fn check_lengths(
        &self,
        lengths: &[usize],
        limit: usize,
    ) -> Result<(), DemonstrationsError> {
        for (line, length) in self.lines.iter().zip(lengths) {
            if *length > limit {
                let problem = format!(
                    "{length} tokens with its prompt, and `sft.max_length` is {limit}; shorten it, \
                     or raise the limit"
                );
                return Err(invalid(&self.path, *line, problem));
            }
        }
        Ok(())
    }

    /// Checks that the model has enough positions for each demonstration with its prompt. `lengths`
    /// and `positions` are in tokens.
    ///
    /// # Errors
    /// Fails at the first that is too long.
    pub fn check_positions(
        &self,
        lengths: &[usize],
        positions: usize,
    ) -> Result<(), DemonstrationsError> {
        for (line, length) in self.lines.iter().zip(lengths) {
            // No token follows the last one, so it needs no position.
            if length.saturating_sub(1) > positions {
                let problem = format!(
                    "{length} tokens with its prompt, and the model has {positions} positions \
                     (max_position_embeddings); shorten it"
                );
                return Err(invalid(&self.path, *line, problem));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Demonstrations, DemonstrationsError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Demonstrations::read(file.path())
    }

    #[test]
    fn demonstrations_are_read_in_order() {
        let read =
            read("{\"question\": \"a?\", \"completion\": \"b\"}\n\n{\"completion\": \"d\", \"question\": \"c?\"}\n")
                .unwrap();
        let questions: Vec<&str> = read.all.iter().map(|one| one.question.as_str()).collect();
        assert_eq!(questions, ["a?", "c?"]);
        assert!(read.check_lengths(&[3, 4], 4).is_ok());
        let error = read.check_lengths(&[3, 5], 4).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("line 3: 5 tokens with its prompt, and `sft.max_length` is 4"),
            "{error}"
        );
    }

    #[test]
    fn demonstration_beyond_the_models_positions_is_named() {
        let line = "{\"question\": \"a?\", \"completion\": \"b\"}\n";
        let demonstrations = read(&line.repeat(2)).unwrap();
        assert!(demonstrations.check_positions(&[3, 5], 4).is_ok());
        let error = demonstrations.check_positions(&[3, 6], 4).unwrap_err().to_string();
        let expected = "line 2: 6 tokens with its prompt, and the model has 4 positions";
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn bad_line_is_named_in_error() {
        for (text, expected) in [
            ("", "holds no demonstration"),
            ("{\"question\": \"a?\", \"completion\": \"b\"}\n{", "line 2"),
            ("{\"question\": \"a?\"}", "line 1: missing field `completion`"),
            ("{\"question\": \"a?\", \"completion\": \" \"}", "line 1: the completion is empty"),
            (
                "{\"question\": \"a?\", \"completion\": \"b\", \"answer\": 1}",
                "line 1: unknown field `answer`",
            ),
            ("[1]", "a line is {\"question\": …, \"completion\": …}"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}

//! Demonstrations in a file, one JSON object per line: {"question", "completion"}.

use std::fmt::Display;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use corver_core::Demonstration;
use serde::Deserialize;

/// Why there is nothing to imitate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemonstrationsError {
    /// A file that cannot be read.
    #[error("cannot read the demonstrations {}: {source}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// A file without demonstrations, or with a line that is none or too long.
    #[error("{0}")]
    InvalidDemonstrations(String),
}

fn invalid(path: &Path, line: usize, problem: impl Display) -> DemonstrationsError {
    let path = path.display();
    DemonstrationsError::InvalidDemonstrations(format!("{path}, line {line}: {problem}"))
}

/// The demonstrations of a file, each with its line.
#[derive(Debug)]
pub struct Demonstrations {
    path: PathBuf,
    /// The line that each stands in, counted from 1.
    lines: Vec<usize>,
    /// In the order of the file.
    pub all: Vec<Demonstration>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    question: String,
    completion: String,
}

impl Demonstrations {
    /// Reads a file; lines of white space are skipped.
    ///
    /// # Errors
    /// A file that cannot be read or holds nothing, or the first line that is no demonstration.
    pub fn read(path: &Path) -> Result<Self, DemonstrationsError> {
        let path = path.to_owned();
        let failed = |source| DemonstrationsError::Io { path: path.clone(), source };
        let (mut lines, mut all) = (Vec::new(), Vec::new());
        for (number, text) in BufReader::new(File::open(&path).map_err(failed)?).lines().enumerate()
        {
            let (text, line) = (text.map_err(failed)?, number + 1);
            if text.trim().is_empty() {
                continue;
            }
            let Line { question, completion } = serde_json::from_str(&text).map_err(|error| {
                let form = "a line is {\"question\": …, \"completion\": …}";
                invalid(&path, line, format!("{error}; {form}"))
            })?;
            for (what, part) in [("question", &question), ("completion", &completion)] {
                if part.trim().is_empty() {
                    return Err(invalid(&path, line, format!("the {what} is empty")));
                }
            }
            lines.push(line);
            all.push(Demonstration { question, completion });
        }
        if all.is_empty() {
            let problem = format!("{} holds no demonstration", path.display());
            return Err(DemonstrationsError::InvalidDemonstrations(problem));
        }
        Ok(Self { path, lines, all })
    }

    /// Whether each is short enough, given the tokens of all of them.
    ///
    /// # Errors
    /// The first that is too long.
    pub fn check_lengths(&self, tokens: &[usize], most: usize) -> Result<(), DemonstrationsError> {
        match self.lines.iter().zip(tokens).find(|(_, tokens)| **tokens > most) {
            None => Ok(()),
            Some((&line, &tokens)) => Err(invalid(
                &self.path,
                line,
                format!(
                    "{tokens} tokens with its prompt, and `sft.max_length` is {most}; shorten it, \
                     or raise the limit"
                ),
            )),
        }
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
    fn bad_line_is_named_in_error() {
        for (text, told) in [
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
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}

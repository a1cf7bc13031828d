//! Demonstrations in a file, one JSON object per line: {"question", "completion"}.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use corver_core::Demonstration;
use serde::Deserialize;

/// Why there is nothing to imitate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemonstrationsError {
    /// The file cannot be read.
    #[error("cannot read the demonstrations {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A line is not a demonstration.
    #[error("{}, line {line}: {source}; a line is {{\"question\": …, \"completion\": …}}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// A line has nothing in it to ask, or nothing to imitate.
    #[error("{}, line {line}: the {what} is empty", path.display())]
    Blank {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// “question” or “completion”.
        what: &'static str,
    },
    /// A line is longer than the model is to learn from.
    #[error("{}, line {line}: {tokens} tokens with its prompt, and `sft.max_length` is {most}; shorten it, or raise the limit", path.display())]
    Long {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// Prompt and completion.
        tokens: usize,
        /// The limit.
        most: usize,
    },
    /// There is no line.
    #[error("{} holds no demonstration", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
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
        let failed = |source| DemonstrationsError::Read { path: path.clone(), source };
        let (mut lines, mut all) = (Vec::new(), Vec::new());
        for (number, text) in BufReader::new(File::open(&path).map_err(failed)?).lines().enumerate()
        {
            let (text, line) = (text.map_err(failed)?, number + 1);
            if text.trim().is_empty() {
                continue;
            }
            let Line { question, completion } = serde_json::from_str(&text)
                .map_err(|source| DemonstrationsError::Line { path: path.clone(), line, source })?;
            for (what, text) in [("question", &question), ("completion", &completion)] {
                if text.trim().is_empty() {
                    return Err(DemonstrationsError::Blank { path, line, what });
                }
            }
            lines.push(line);
            all.push(Demonstration { question, completion });
        }
        if all.is_empty() {
            Err(DemonstrationsError::Empty { path })
        } else {
            Ok(Self { path, lines, all })
        }
    }

    /// Whether each is short enough, given the tokens of all of them.
    ///
    /// # Errors
    /// The first that is too long.
    pub fn check_lengths(&self, tokens: &[usize], most: usize) -> Result<(), DemonstrationsError> {
        match self.lines.iter().zip(tokens).find(|(_, tokens)| **tokens > most) {
            None => Ok(()),
            Some((&line, &tokens)) => {
                Err(DemonstrationsError::Long { path: self.path.clone(), line, tokens, most })
            }
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
    fn lines_are_read_in_order() {
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
    fn a_bad_line_is_named() {
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

//! A second opinion on graded answers: what a chat model says of each, and how far it agrees with the string match. For validation
//! alone; no reward comes from here (paper, App. “Optional LLM judge”).

pub mod agreement;
pub mod prompt;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use corver_core::{Compatibility, Label, Question};
use serde::Serialize;

use crate::eval::GradedAnswer;
use crate::eval::grade::extract_answer;

pub use agreement::{Agreement, Kappa, kappa};
pub use prompt::{JudgeSettings, PromptError};

/// Why answers cannot be judged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JudgeError {
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
    /// No question with golds belongs to an answer.
    #[error("{}:{line}: no gold is known for {question:?}; --questions names the file that was asked", path.display())]
    NoGold {
        /// Which file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What was asked.
        question: String,
    },
    /// The file has no line.
    #[error("{} holds no answer", path.display())]
    Empty {
        /// Which file.
        path: PathBuf,
    },
}

/// An answer to judge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Item {
    /// What was asked.
    pub question: String,
    /// Every spelling that counts as right.
    pub golds: Vec<String>,
    /// What stands in the answer block; empty where there is none.
    pub answer: String,
    /// All that was generated.
    #[serde(skip)]
    pub completion: String,
    /// What the string match made of it.
    pub string_match: Label,
}

/// An answer with both opinions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Judged<'a> {
    /// The answer.
    #[serde(flatten)]
    pub item: &'a Item,
    /// What the model says; `None` where its reply is no label.
    pub model: Option<Label>,
    /// Its reply.
    pub reply: &'a str,
}

impl Judged<'_> {
    /// Whether both gave a label, and not the same.
    #[must_use]
    pub fn is_disputed(&self) -> bool {
        self.model.is_some_and(|label| label != self.item.string_match)
    }
}

/// Reads graded answers, with the golds of their questions.
///
/// # Errors
/// A file that cannot be read, a line that is no answer, or one whose question is not among `questions` or has no gold.
pub fn read_items(path: &Path, questions: &[Question]) -> Result<Vec<Item>, JudgeError> {
    let golds: std::collections::HashMap<&str, &[String]> =
        questions.iter().map(|question| (question.question.as_str(), question.golds.as_slice())).collect();
    let read = |source| JudgeError::Read { path: path.to_owned(), source };
    let mut items = Vec::new();
    for (index, line) in BufReader::new(File::open(path).map_err(read)?).lines().enumerate() {
        let wrong = |source| JudgeError::Line { path: path.to_owned(), line: index + 1, source };
        let answer: GradedAnswer = serde_json::from_str(&line.map_err(read)?).map_err(wrong)?;
        let Some(golds) = golds.get(answer.question.as_str()).filter(|golds| !golds.is_empty()) else {
            return Err(JudgeError::NoGold { path: path.to_owned(), line: index + 1, question: answer.question });
        };
        items.push(Item {
            golds: golds.to_vec(),
            answer: extract_answer(&answer.completion, Compatibility::Paper).to_owned(),
            question: answer.question,
            completion: answer.completion,
            string_match: answer.grade,
        });
    }
    if items.is_empty() { Err(JudgeError::Empty { path: path.to_owned() }) } else { Ok(items) }
}

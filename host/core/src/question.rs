//! Stage 1: file → questions.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// One prompt with its gold answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The user message, sent as it is.
    pub question: String,
    /// Every spelling that counts as right. Empty where nobody knows: the judge then pays nothing.
    pub golds: Vec<String>,
    /// Where the answer was found, if the file says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// How often people look for what it asks about, if the file says so: `popularity`, or PopQA's `s_pop`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub popularity: Option<u64>,
}

/// Why a question file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QuestionError {
    /// The file cannot be read.
    #[error("cannot read the question file {}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file is neither a JSON list nor JSON lines.
    #[error("{} is neither a JSON list of questions nor one question per line: {source}", path.display())]
    NotJson {
        /// Which file.
        path: PathBuf,
        /// Where the JSON breaks.
        source: serde_json::Error,
    },
    /// One record does not have the fields it needs.
    #[error(
        "{}: record {record}: {problem}; a record has `question` with `answers` (a list, or one text separated by `;`), or with `answer` and `aliases`",
        path.display()
    )]
    Record {
        /// Which file.
        path: PathBuf,
        /// Counted from 1.
        record: usize,
        /// What is missing or wrong.
        problem: String,
    },
    /// There is no record.
    #[error("{} holds no question", path.display())]
    Empty {
        /// Which file.
        path: PathBuf,
    },
}

/// The two layouts in use: training files carry `answers`, evaluation sets `answer` and `aliases`.
#[derive(Deserialize)]
struct Record {
    question: String,
    answers: Option<Answers>,
    answer: Option<String>,
    #[serde(default)]
    aliases: Vec<String>,
    title: Option<String>,
    #[serde(alias = "s_pop")]
    popularity: Option<u64>,
}

/// Gold answers in a file.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "`answers` is neither a string (golds separated by `;`) nor a list of strings")]
pub enum Answers {
    /// `;` separates them, blank ones are ignored.
    Separated(String),
    /// As they are.
    Listed(Vec<String>),
}

impl Answers {
    /// One by one. An empty list says that there are none.
    ///
    /// # Errors
    /// A text that holds none.
    pub fn golds(self) -> Result<Vec<String>, String> {
        match self {
            Self::Separated(golds) => {
                Some(split_golds(&golds)).filter(|golds| !golds.is_empty()).ok_or_else(|| NO_GOLD.to_owned())
            }
            Self::Listed(golds) => Ok(golds),
        }
    }
}

/// What is said of a record that names none.
const NO_GOLD: &str = "no gold answer; a question that has none says `\"answers\": []`";

/// Reads a JSON list of questions, or one question per line, in either layout.
///
/// # Errors
/// Where the file cannot be read or a record lacks a field; the message names the record.
pub fn read_questions(path: &Path) -> Result<Vec<Question>, QuestionError> {
    let text = std::fs::read_to_string(path).map_err(|source| QuestionError::Read { path: path.to_owned(), source })?;
    parse_questions(path, &text)
}

fn parse_questions(path: &Path, text: &str) -> Result<Vec<Question>, QuestionError> {
    let records: Result<Vec<serde_json::Value>, _> = match text.trim_start().starts_with('[') {
        true => serde_json::from_str(text),
        false => text.lines().filter(|line| !line.trim().is_empty()).map(serde_json::from_str).collect(),
    };
    let records = records.map_err(|source| QuestionError::NotJson { path: path.to_owned(), source })?;
    if records.is_empty() {
        return Err(QuestionError::Empty { path: path.to_owned() });
    }
    let question = |(index, value)| {
        parse_record(value).map_err(|problem| QuestionError::Record {
            path: path.to_owned(),
            record: index + 1,
            problem,
        })
    };
    records.into_iter().enumerate().map(question).collect()
}

fn parse_record(value: serde_json::Value) -> Result<Question, String> {
    let record: Record = serde_json::from_value(value).map_err(|error| error.to_string())?;
    let golds = match (record.answers, record.answer) {
        (Some(answers), _) => answers.golds()?,
        (None, Some(answer)) => std::iter::once(answer).chain(record.aliases).collect(),
        (None, None) => return Err("missing field `answers`".to_owned()),
    };
    Ok(Question { question: record.question, golds, title: record.title, popularity: record.popularity })
}

/// The gold answers of a training record: separated by `;`, blank ones ignored.
#[must_use]
pub fn split_golds(answers: &str) -> Vec<String> {
    answers.split(';').map(crate::text::strip).filter(|gold| !gold.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_layouts_are_read() {
        let train = serde_json::json!({"question": "q", "answers": "Paris; Lutetia;;", "title": "Paris"});
        assert_eq!(parse_record(train).unwrap().golds, ["Paris", "Lutetia"]);
        let listed = serde_json::json!({"question": "q", "answers": ["AC;DC", "b"], "num_correct": 3});
        assert_eq!(parse_record(listed).unwrap().golds, ["AC;DC", "b"]);
        let none = serde_json::json!({"question": "q", "answers": []});
        assert!(parse_record(none).unwrap().golds.is_empty());
        let eval = serde_json::json!({"question": "q", "answer": "a;b", "aliases": ["c"], "s_pop": 7});
        let question = parse_record(eval).unwrap();
        assert_eq!((question.golds, question.popularity), (vec!["a;b".to_owned(), "c".to_owned()], Some(7)));
    }

    #[test]
    fn a_list_and_lines_hold_the_same() {
        let read = |text: &str| parse_questions(Path::new("questions"), text);
        let (one, two) = (r#"{"question": "q", "answers": "a"}"#, r#"{"question": "r", "answer": "b"}"#);
        let list = read(&format!("[{one}, {two}]")).unwrap();
        assert_eq!(list.len(), 2);
        assert_eq!(read(&format!("{one}\r\n\n{two}")).unwrap(), list);
        assert!(matches!(read(&format!("{one}\nno")), Err(QuestionError::NotJson { .. })));
        assert!(matches!(read(&format!("{one}\n{{}}")), Err(QuestionError::Record { record: 2, .. })));
        assert!(matches!(read(" \n"), Err(QuestionError::Empty { .. })));
        assert!(matches!(read("[]"), Err(QuestionError::Empty { .. })));
    }

    #[test]
    fn a_missing_field_is_named() {
        assert!(parse_record(serde_json::json!({"answers": "x"})).unwrap_err().contains("question"));
        assert!(parse_record(serde_json::json!({"question": "x"})).unwrap_err().contains("answers"));
        assert!(parse_record(serde_json::json!({"question": "x", "answers": ";"})).unwrap_err().contains("no gold"));
    }
}

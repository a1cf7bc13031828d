//! Question files: records in the layouts of published sets.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use corver_core::Question;
use corver_core::question::split_golds;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// First bytes of a Parquet file.
const PARQUET: &[u8] = b"PAR1";

/// A question as a question file has it: what [`question`] reads as the same question.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct QuestionRecord<'a> {
    /// The user message.
    pub question: &'a str,
    /// The golds.
    pub answers: &'a [String],
    /// Where the answer was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<&'a str>,
    /// How often people look for what it asks about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub popularity: Option<u64>,
    /// Texts that hold the answer.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub evidence: &'a [String],
}

impl<'a> From<&'a Question> for QuestionRecord<'a> {
    fn from(question: &'a Question) -> Self {
        Self {
            question: &question.question,
            answers: &question.golds,
            title: question.title.as_deref(),
            popularity: question.popularity,
            evidence: &question.evidence,
        }
    }
}

/// Why a question file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QuestionError {
    /// A file that cannot be read.
    #[error("cannot read the question file {}: {source}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// A Parquet file that cannot be read.
    #[error(transparent)]
    Parquet(#[from] corver_corpus::Error),
    /// A file without questions, or with a record that is none.
    #[error("{0}")]
    InvalidQuestions(String),
}

/// The fields of all layouts: see [`question`].
#[derive(Deserialize)]
struct Record {
    #[serde(alias = "problem")]
    question: String,
    answers: Option<Answers>,
    answer: Option<Answer>,
    aliases: Option<Vec<String>>,
    possible_answers: Option<PossibleAnswers>,
    best_answer: Option<String>,
    correct_answers: Option<Vec<String>>,
    #[serde(alias = "s_wiki_title")]
    title: Option<String>,
    #[serde(alias = "s_pop")]
    popularity: Option<u64>,
    evidence: Option<Evidence>,
    context: Option<Context>,
}

/// Texts that hold the answer.
#[derive(Deserialize)]
#[serde(untagged, expecting = "`evidence` is neither a string nor a list of strings")]
enum Evidence {
    One(String),
    Listed(Vec<String>),
}

/// HotpotQA's paragraphs, each a list of sentences; another set's `context` is of another form, and
/// ignored.
#[derive(Deserialize)]
#[serde(untagged)]
enum Context {
    Columns { title: Vec<String>, sentences: Vec<Vec<String>> },
    Rows(Vec<(String, Vec<String>)>),
    Other(serde::de::IgnoredAny),
}

/// One text per paragraph, its title first.
fn evidence(evidence: Option<Evidence>, context: Option<Context>) -> Vec<String> {
    let paragraph =
        |(title, sentences): (String, Vec<String>)| format!("{title}: {}", sentences.concat());
    match (evidence, context) {
        (Some(Evidence::One(text)), _) => vec![text],
        (Some(Evidence::Listed(texts)), _) => texts,
        (None, Some(Context::Columns { title, sentences })) => {
            title.into_iter().zip(sentences).map(paragraph).collect()
        }
        (None, Some(Context::Rows(rows))) => rows.into_iter().map(paragraph).collect(),
        (None, Some(Context::Other(_)) | None) => Vec::new(),
    }
}

/// Gold answers in a file.
#[derive(Debug, Clone, Deserialize)]
#[serde(
    untagged,
    expecting = "`answers` is neither a string (golds separated by `;`) nor a list of strings"
)]
pub enum Answers {
    /// `;` separates them, blank ones are ignored.
    Separated(String),
    /// As they are.
    Listed(Vec<String>),
}

/// An evaluation set's text, NQ-Open's list, TriviaQA's entity.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "`answer` is neither a string nor a list of strings nor an object with `value` and `aliases`"
)]
enum Answer {
    One(String),
    Listed(Vec<String>),
    Entity { value: String, aliases: Vec<String> },
}

/// PopQA's: JSON within JSON, or the list itself.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "`possible_answers` is neither a list of strings nor the JSON text of one"
)]
enum PossibleAnswers {
    Text(String),
    Listed(Vec<String>),
}

impl Answers {
    /// One by one. An empty list says that there are none.
    ///
    /// # Errors
    /// A text that holds none.
    pub fn golds(self) -> Result<Vec<String>, String> {
        match self {
            Self::Separated(golds) => Some(split_golds(&golds))
                .filter(|golds| !golds.is_empty())
                .ok_or_else(|| NO_GOLD.to_owned()),
            Self::Listed(golds) => Ok(golds),
        }
    }
}

impl PossibleAnswers {
    fn golds(self) -> Result<Vec<String>, String> {
        match self {
            Self::Text(text) => serde_json::from_str(&text).map_err(|error| {
                format!("`possible_answers` is not the JSON text of a list of strings: {error}")
            }),
            Self::Listed(golds) => Ok(golds),
        }
    }
}

/// What is said of a record that names none.
const NO_GOLD: &str = "no gold answer; a question that has none says `\"answers\": []`";

/// Reads the questions of a file: a JSON list, one JSON object per line, or Parquet, in any layout
/// that [`question`] knows.
///
/// # Errors
/// If the file cannot be read or a record lacks a field; the message names the record.
pub fn read_questions(path: &Path) -> Result<Vec<Question>, QuestionError> {
    let io = |source| QuestionError::Io { path: path.to_owned(), source };
    if is_parquet(path).map_err(io)? {
        let records: Vec<Value> =
            corver_corpus::parquet_records(path)?.collect::<Result<_, _>>()?;
        return questions(path, records);
    }
    let text = std::fs::read_to_string(path).map_err(io)?;
    questions(path, records(path, &text)?)
}

/// Returns true if a file is Parquet, by its name or by its first bytes.
fn is_parquet(path: &Path) -> io::Result<bool> {
    let mut start = Vec::new();
    File::open(path)?.take(PARQUET.len() as u64).read_to_end(&mut start)?;
    Ok(start == PARQUET || path.extension().is_some_and(|extension| extension == "parquet"))
}

/// The questions of a file's records, in order.
///
/// # Errors
/// Where there is no record, or one lacks a field; the message names it.
pub fn questions(
    path: &Path,
    records: impl IntoIterator<Item = Value>,
) -> Result<Vec<Question>, QuestionError> {
    let numbered = |(index, record)| {
        question(record).map_err(|problem| {
            QuestionError::InvalidQuestions(format!(
                "{}: record {}: {problem}; a record has `question` with `answers` (a list, or one \
                 text separated by `;`), or with `answer` and `aliases`, or is as a published set \
                 has it (docs/real-models.md)",
                path.display(),
                index + 1
            ))
        })
    };
    let questions = records.into_iter().enumerate().map(numbered).collect::<Result<Vec<_>, _>>()?;
    if questions.is_empty() {
        let problem = format!("{} holds no question", path.display());
        return Err(QuestionError::InvalidQuestions(problem));
    }
    Ok(questions)
}

fn records(path: &Path, text: &str) -> Result<Vec<Value>, QuestionError> {
    if text.trim_start().starts_with('[') {
        return serde_json::from_str(text).map_err(|error| {
            let path = path.display();
            let problem = format!("{path} is not a JSON list of questions: {error}");
            QuestionError::InvalidQuestions(problem)
        });
    }
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let record = |(index, line)| {
        serde_json::from_str(line).map_err(|error| {
            QuestionError::InvalidQuestions(format!(
                "{}:{}: {error}; a question file is a JSON list, or one JSON object per line",
                path.display(),
                index + 1
            ))
        })
    };
    lines.map(record).collect()
}

/// The question of one record, or what is wrong with it. The layouts, by what gives the golds:
///
/// | layout | fields |
/// | --- | --- |
/// | a training file | `question`, `answers`: a text separated by `;`, or a list; `title` |
/// | an evaluation set | `question`, `answer`, `aliases`; `popularity` |
/// | NQ-Open | `question`, `answer`: a list |
/// | WebQuestions | `question`, `answers`: a list |
/// | TriviaQA | `question`, `answer`: `value` and `aliases` |
/// | PopQA | `question`, `possible_answers`: a list as JSON text; `s_pop`, `s_wiki_title` |
/// | SimpleQA | `problem`, `answer` |
/// | TruthfulQA (generation) | `question`, `best_answer`, `correct_answers` |
/// | HotpotQA, 2WikiMultihopQA | `question`, `answer`, `context`: titles with sentences |
///
/// Any of them may have `evidence`, a text or a list of texts.
///
/// Other fields are ignored, and fields that are null are not there. A record that fits several
/// lines is read as the first.
///
/// # Errors
/// What is missing or wrong.
pub fn question(record: Value) -> Result<Question, String> {
    let record: Record = serde_json::from_value(record).map_err(|error| error.to_string())?;
    let golds = match record {
        Record { answers: Some(answers), .. } => answers.golds()?,
        Record { answer: Some(answer), aliases, .. } => match answer {
            Answer::One(answer) => prepend_unique(answer, aliases.unwrap_or_default()),
            Answer::Listed(golds) => golds,
            Answer::Entity { value, aliases: of_entity } => prepend_unique(value, of_entity),
        },
        Record { possible_answers: Some(answers), .. } => answers.golds()?,
        Record { best_answer: Some(best), correct_answers: Some(correct), .. } => {
            prepend_unique(best, correct)
        }
        _ => return Err("missing field `answers`".to_owned()),
    };
    let evidence = evidence(record.evidence, record.context);
    Ok(Question {
        question: record.question,
        golds,
        title: record.title,
        popularity: record.popularity,
        evidence,
    })
}

fn prepend_unique(first: String, others: Vec<String>) -> Vec<String> {
    let others: Vec<String> = others.into_iter().filter(|other| *other != first).collect();
    std::iter::once(first).chain(others).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn golds(record: Value) -> Vec<String> {
        question(record).unwrap().golds
    }

    #[test]
    fn question_reads_corver_layouts() {
        assert_eq!(
            golds(json!({"question": "q", "answers": "Paris; Lutetia;;", "title": "Paris"})),
            ["Paris", "Lutetia"]
        );
        assert_eq!(
            golds(json!({"question": "q", "answers": ["AC;DC", "b"], "num_correct": 3})),
            ["AC;DC", "b"]
        );
        assert!(golds(json!({"question": "q", "answers": []})).is_empty());
        let eval = question(
            json!({"question": "q", "answer": "a;b", "aliases": ["c", "a;b"], "popularity": 7}),
        )
        .unwrap();
        assert_eq!(
            (eval.golds, eval.popularity),
            (vec!["a;b".to_owned(), "c".to_owned()], Some(7))
        );
    }

    #[test]
    fn question_reads_published_dataset_layouts() {
        let nq = json!({"question": "where is the Eiffel Tower", "answer": ["Paris", "in Paris"]});
        assert_eq!(golds(nq), ["Paris", "in Paris"]);
        let web = json!({"url": "http://…/en/paris", "question": "what is the capital of france?", "answers": ["Paris"]});
        assert_eq!(golds(web), ["Paris"]);
        let trivia = json!({"question": "q", "question_id": "tc_1", "search_results": {"title": ["x"]}, "answer": {
            "value": "Paris", "aliases": ["Lutetia", "Paris"], "normalized_aliases": ["paris"], "type": "WikipediaEntity"}});
        assert_eq!(golds(trivia), ["Paris", "Lutetia"]);
        let pop = json!({"id": 1, "question": "What is George Rankin's occupation?", "s_pop": 142, "o_pop": 25_692,
            "s_wiki_title": "George Rankin", "possible_answers": r#"["politician", "political leader"]"#});
        let pop = question(pop).unwrap();
        assert_eq!(
            (pop.golds.len(), pop.popularity, pop.title.as_deref()),
            (2, Some(142), Some("George Rankin"))
        );
        assert_eq!(
            golds(json!({"metadata": "{}", "problem": "Who?", "answer": "Michio Sugeno"})),
            ["Michio Sugeno"]
        );
        let truthful = json!({"type": "Adversarial", "question": "q", "best_answer": "No", "correct_answers": ["Never", "No"],
            "incorrect_answers": ["Yes"]});
        assert_eq!(golds(truthful), ["No", "Never"]);
    }

    #[test]
    fn evidence_is_read_from_every_layout() {
        let read = |field: Value| {
            let mut record = json!({"question": "q", "answer": "a"});
            record.as_object_mut().unwrap().extend(field.as_object().unwrap().clone());
            question(record).unwrap().evidence
        };
        assert_eq!(read(json!({"evidence": "Rome is in Italy."})), ["Rome is in Italy."]);
        assert_eq!(read(json!({"evidence": ["a", "b"], "context": "ignored"})), ["a", "b"]);
        let columns =
            json!({"context": {"title": ["Rome"], "sentences": [["It is old.", " It is large."]]}});
        let rows = json!({"context": [["Rome", ["It is old.", " It is large."]]]});
        assert_eq!(read(columns), ["Rome: It is old. It is large."]);
        assert_eq!(read(rows), ["Rome: It is old. It is large."]);
        assert!(
            read(json!({"context": {"paragraphs": 3}})).is_empty() && read(json!({})).is_empty()
        );
    }

    #[test]
    fn null_fields_count_as_absent() {
        let row = json!({"question": "q", "answers": null, "answer": "a", "aliases": null, "title": null, "s_pop": null});
        assert_eq!(question(row).unwrap().golds, ["a"]);
    }

    #[test]
    fn question_record_round_trips() {
        let one = Question {
            question: "q".into(),
            golds: vec!["a;b".into()],
            title: Some("t".into()),
            popularity: Some(3),
            evidence: vec!["e".into()],
        };
        let bare = Question { question: "q".into(), ..Question::default() };
        for written in [one, bare] {
            assert_eq!(
                question(serde_json::to_value(QuestionRecord::from(&written)).unwrap()).unwrap(),
                written
            );
        }
    }

    #[test]
    fn json_list_and_lines_read_equal_questions() {
        let path = Path::new("questions");
        let read = |text: &str| questions(path, records(path, text)?);
        let (one, two) =
            (r#"{"question": "q", "answers": "a"}"#, r#"{"question": "r", "answer": "b"}"#);
        let list = read(&format!("[{one}, {two}]")).unwrap();
        assert_eq!(list.len(), 2);
        assert_eq!(read(&format!("{one}\r\n\n{two}")).unwrap(), list);
        for (text, told) in [
            (format!("{one}\n\nno"), "questions:3: "),
            (format!("[{one}"), "questions is not a JSON list of questions: "),
            (format!("{one}\n{{}}"), "questions: record 2: "),
            (" \n".to_owned(), "questions holds no question"),
            ("[]".to_owned(), "questions holds no question"),
        ] {
            let error = read(&text).unwrap_err().to_string();
            assert!(error.starts_with(told), "{error}");
        }
    }

    #[test]
    fn bad_question_record_error_names_field() {
        for (record, problem) in [
            (json!({"answers": "x"}), "`question`"),
            (json!({"question": "x"}), "`answers`"),
            (json!({"question": "x", "answers": ";"}), "no gold"),
            (json!({"question": "x", "answers": 7}), "`answers` is neither"),
            (json!({"question": "x", "answer": {"value": "a"}}), "`answer` is neither"),
            (
                json!({"question": "x", "possible_answers": "a, b"}),
                "`possible_answers` is not the JSON text",
            ),
            (json!({"question": "x", "best_answer": "a"}), "`answers`"),
        ] {
            let told = question(record.clone()).unwrap_err();
            assert!(told.contains(problem), "{record}: {told}");
        }
    }
}

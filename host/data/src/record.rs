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

/// A question in CorVer's own layout, which [`question`] reads back as the same question.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct QuestionRecord<'a> {
    /// Text of the question, which is the user message.
    pub question: &'a str,
    /// Golds; may be empty.
    pub answers: &'a [String],
    /// Title of the document with the answer, if known; `;` separates several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<&'a str>,
    /// Popularity of the subject, if known; PopQA has the monthly views of its article.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub popularity: Option<u64>,
    /// Texts that contain the answer; may be empty.
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

/// A failure to find or read a question set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QuestionError {
    /// A file or folder that cannot be read.
    #[error("failed to {action} {}: {source}", path.display())]
    Io {
        /// Verb and object of the call: "read the question file", …
        action: &'static str,
        /// Path of the file or folder.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A Parquet file that cannot be read.
    #[error(transparent)]
    Parquet(#[from] corver_corpus::Error),
    /// A location that names no question files or several splits, or a file with a malformed record
    /// or without questions.
    #[error("{0}")]
    Invalid(String),
}

impl QuestionError {
    /// Returns a function for `map_err` that adds action and path to an operating system error.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

/// The fields of all layouts; see [`question`].
#[derive(Deserialize)]
struct Record {
    #[serde(alias = "problem")]
    question: String,
    answers: Option<GoldsField>,
    answer: Option<AnswerField>,
    aliases: Option<Vec<String>>,
    possible_answers: Option<PossibleAnswers>,
    best_answer: Option<String>,
    correct_answers: Option<Vec<String>>,
    #[serde(alias = "s_wiki_title")]
    title: Option<String>,
    #[serde(alias = "s_pop")]
    popularity: Option<u64>,
    evidence: Option<EvidenceField>,
    context: Option<ContextField>,
}

/// Texts that contain the answer.
#[derive(Deserialize)]
#[serde(untagged, expecting = "`evidence` is neither a string nor a list of strings")]
enum EvidenceField {
    Text(String),
    Listed(Vec<String>),
}

/// HotpotQA's paragraphs, each a list of sentences. A `context` of another form is ignored.
#[derive(Deserialize)]
#[serde(untagged)]
enum ContextField {
    Columns { title: Vec<String>, sentences: Vec<Vec<String>> },
    Rows(Vec<(String, Vec<String>)>),
    Other(serde::de::IgnoredAny),
}

/// Returns one text per paragraph, which begins with its title.
fn evidence_texts(evidence: Option<EvidenceField>, context: Option<ContextField>) -> Vec<String> {
    let rows = match (evidence, context) {
        (Some(EvidenceField::Text(text)), _) => return vec![text],
        (Some(EvidenceField::Listed(texts)), _) => return texts,
        (None, Some(ContextField::Columns { title, sentences })) => {
            title.into_iter().zip(sentences).collect()
        }
        (None, Some(ContextField::Rows(rows))) => rows,
        (None, Some(ContextField::Other(_)) | None) => Vec::new(),
    };
    let mut paragraphs = Vec::with_capacity(rows.len());
    for (title, sentences) in rows {
        paragraphs.push(format!("{title}: {}", sentences.concat()));
    }
    paragraphs
}

/// The golds of a record, in one of two shapes.
#[derive(Debug, Clone, Deserialize)]
#[serde(
    untagged,
    expecting = "`answers` is neither a string (golds separated by `;`) nor a list of strings"
)]
pub enum GoldsField {
    /// Golds separated by `;`. Blank ones are ignored.
    Separated(String),
    /// A list of golds, taken literally.
    Listed(Vec<String>),
}

/// The text of an evaluation set, the list of NQ-Open, or the entity of TriviaQA.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "`answer` is neither a string nor a list of strings nor an object with `value` and \
                 `aliases`"
)]
enum AnswerField {
    Text(String),
    Listed(Vec<String>),
    Entity { value: String, aliases: Vec<String> },
}

/// PopQA's golds: a list as JSON text, or the list itself.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "`possible_answers` is neither a list of strings nor the JSON text of one"
)]
enum PossibleAnswers {
    Text(String),
    Listed(Vec<String>),
}

impl GoldsField {
    /// Returns the golds. An empty list is valid: the question has none.
    ///
    /// # Errors
    /// Fails if a text has no gold.
    pub fn golds(self) -> Result<Vec<String>, String> {
        match self {
            Self::Separated(text) => {
                let golds = split_golds(&text);
                if golds.is_empty() { Err(NO_GOLD.to_owned()) } else { Ok(golds) }
            }
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

/// Message about a record with a blank text of golds.
const NO_GOLD: &str = "no gold answer; a question that has none says `\"answers\": []`";

/// Reads the questions of a file: a JSON list, one JSON object per line, or Parquet, in any layout
/// that [`question`] knows.
///
/// # Errors
/// Fails if the file cannot be read, has no question, or a record lacks a field. The message names
/// the record.
pub fn read_questions(path: &Path) -> Result<Vec<Question>, QuestionError> {
    let read = || QuestionError::io("read the question file", path);
    if is_parquet(path).map_err(read())? {
        let records: Vec<Value> =
            corver_corpus::parquet_records(path)?.collect::<Result<_, _>>()?;
        return questions(path, records);
    }
    let text = std::fs::read_to_string(path).map_err(read())?;
    questions(path, records(path, &text)?)
}

/// True if a file is Parquet, by its extension or by its first bytes.
fn is_parquet(path: &Path) -> io::Result<bool> {
    let mut start = Vec::new();
    File::open(path)?.take(PARQUET.len() as u64).read_to_end(&mut start)?;
    Ok(start == PARQUET || path.extension().is_some_and(|extension| extension == "parquet"))
}

/// Returns the questions of a file's records, in order. `path` is for messages.
///
/// # Errors
/// Fails if there is no record, or one lacks a field. The message names the record.
pub fn questions(
    path: &Path,
    records: impl IntoIterator<Item = Value>,
) -> Result<Vec<Question>, QuestionError> {
    let mut questions = Vec::new();
    for record in records {
        questions.push(question(record).map_err(|problem| {
            QuestionError::Invalid(format!(
                "{}: record {}: {problem}; a record has `question` with `answers` (a list, or one \
                 text separated by `;`), or with `answer` and `aliases`, or is as a published set \
                 has it (docs/real-models.md)",
                path.display(),
                questions.len() + 1
            ))
        })?);
    }
    if questions.is_empty() {
        let problem = format!("{} holds no question", path.display());
        return Err(QuestionError::Invalid(problem));
    }
    Ok(questions)
}

fn records(path: &Path, text: &str) -> Result<Vec<Value>, QuestionError> {
    if text.trim_start().starts_with('[') {
        return serde_json::from_str(text).map_err(|error| {
            let path = path.display();
            let problem = format!("{path} is not a JSON list of questions: {error}");
            QuestionError::Invalid(problem)
        });
    }
    let mut records = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        records.push(serde_json::from_str(line).map_err(|error| {
            QuestionError::Invalid(format!(
                "{}:{}: {error}; a question file is a JSON list, or one JSON object per line",
                path.display(),
                index + 1
            ))
        })?);
    }
    Ok(records)
}

/// Reads the question of a record. The fields with the golds decide the layout:
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
/// Other fields are ignored, and a null field counts as absent. If several layouts fit, the first
/// one applies.
///
/// # Errors
/// Returns the problem if a field is missing or malformed.
pub fn question(record: Value) -> Result<Question, String> {
    let record: Record = serde_json::from_value(record).map_err(|error| error.to_string())?;
    let golds = match record {
        Record { answers: Some(answers), .. } => answers.golds()?,
        Record { answer: Some(answer), aliases, .. } => match answer {
            AnswerField::Text(answer) => prepend_unique(answer, aliases.unwrap_or_default()),
            AnswerField::Listed(golds) => golds,
            AnswerField::Entity { value, aliases: of_entity } => prepend_unique(value, of_entity),
        },
        Record { possible_answers: Some(answers), .. } => answers.golds()?,
        Record { best_answer: Some(best), correct_answers: Some(correct), .. } => {
            prepend_unique(best, correct)
        }
        _ => return Err("missing field `answers`".to_owned()),
    };
    let evidence = evidence_texts(record.evidence, record.context);
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
        let web = json!({
            "url": "http://…/en/paris", "question": "what is the capital of france?",
            "answers": ["Paris"],
        });
        assert_eq!(golds(web), ["Paris"]);
        let trivia = json!({
            "question": "q", "question_id": "tc_1", "search_results": {"title": ["x"]},
            "answer": {
                "value": "Paris", "aliases": ["Lutetia", "Paris"],
                "normalized_aliases": ["paris"], "type": "WikipediaEntity",
            },
        });
        assert_eq!(golds(trivia), ["Paris", "Lutetia"]);
        let pop = json!({
            "id": 1, "question": "What is George Rankin's occupation?", "s_pop": 142,
            "o_pop": 25_692, "s_wiki_title": "George Rankin",
            "possible_answers": r#"["politician", "political leader"]"#,
        });
        let pop = question(pop).unwrap();
        assert_eq!(
            (pop.golds.len(), pop.popularity, pop.title.as_deref()),
            (2, Some(142), Some("George Rankin"))
        );
        assert_eq!(
            golds(json!({"metadata": "{}", "problem": "Who?", "answer": "Michio Sugeno"})),
            ["Michio Sugeno"]
        );
        let truthful = json!({
            "type": "Adversarial", "question": "q", "best_answer": "No",
            "correct_answers": ["Never", "No"], "incorrect_answers": ["Yes"],
        });
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
        let row = json!({
            "question": "q", "answers": null, "answer": "a", "aliases": null, "title": null,
            "s_pop": null,
        });
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
        let one = r#"{"question": "q", "answers": "a"}"#;
        let two = r#"{"question": "r", "answer": "b"}"#;
        let list = read(&format!("[{one}, {two}]")).unwrap();
        assert_eq!(list.len(), 2);
        assert_eq!(read(&format!("{one}\r\n\n{two}")).unwrap(), list);
        for (text, start) in [
            (format!("{one}\n\nno"), "questions:3: "),
            (format!("[{one}"), "questions is not a JSON list of questions: "),
            (format!("{one}\n{{}}"), "questions: record 2: "),
            (" \n".to_owned(), "questions holds no question"),
            ("[]".to_owned(), "questions holds no question"),
        ] {
            let error = read(&text).unwrap_err().to_string();
            assert!(error.starts_with(start), "{error}");
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
            let message = question(record.clone()).unwrap_err();
            assert!(message.contains(problem), "{record}: {message}");
        }
    }
}

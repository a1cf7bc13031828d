//! Question files: records in the layouts of published sets.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use corver_core::Question;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::golds::{GOLD_FIELDS, golds_of_record, scalar_text, wrong};

/// Fields of a record that are read in addition to the golds.
const TEXT_FIELDS: [&str; 8] =
    ["question", "problem", "title", "s_wiki_title", "popularity", "s_pop", "evidence", "context"];
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
    /// A location that names no question files, several splits, or one with repeated or missing
    /// files; or a file with a malformed record or without questions.
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

/// Reads the questions of a file: a JSON list, one JSON object per line, or Parquet, in any layout
/// that [`question`] knows.
///
/// # Errors
/// Fails if the file cannot be read, has no question, or a record lacks a field. The message names
/// the record.
pub fn read_questions(path: &Path) -> Result<Vec<Question>, QuestionError> {
    let read = || QuestionError::io("read the question file", path);
    if is_parquet(path).map_err(read())? {
        let mut columns = TEXT_FIELDS.to_vec();
        columns.extend(GOLD_FIELDS.map(|field| field.name));
        let records: Vec<Value> =
            corver_corpus::parquet_records(path, &columns)?.collect::<Result<_, _>>()?;
        return questions(path, records);
    }
    let text = corver_files::read_text(path).map_err(read())?;
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
                 has it (docs/train-your-model.md)",
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
    // Files that are joined have a byte-order mark at the start of each.
    let text = text.replace("\n\u{feff}", "\n");
    let mut records = Vec::new();
    for result in serde_json::Deserializer::from_str(&text).into_iter() {
        records.push(result.map_err(|error| {
            QuestionError::Invalid(format!(
                "{}:{}: {error}; a question file is a JSON list, or one JSON object per line",
                path.display(),
                error.line()
            ))
        })?);
    }
    Ok(records)
}

/// Reads the question of a record, in any of these layouts:
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
/// | MuSiQue | `question`, `answer`, `answer_aliases` |
/// | FlashRAG | `question`, `golden_answers` |
///
/// Any of them may have `evidence`, a text or a list of texts. [`crate::golds::golds`] describes
/// the values of fields with golds.
///
/// Other fields are ignored, and a null field counts as absent.
///
/// # Errors
/// Returns the problem, with the field, if one is missing or malformed.
pub fn question(record: Value) -> Result<Question, String> {
    let Value::Object(record) = record else {
        return Err(wrong("record", &record, "a JSON object"));
    };
    let Some(golds) = golds_of_record(&record)? else {
        let names: Vec<&str> = record.keys().map(String::as_str).collect();
        return Err(format!("missing field `answers`; its fields are {}", names.join(", ")));
    };
    let text = match first_of(&record, ["question", "problem"]) {
        Some((_, Value::String(text))) => text.clone(),
        Some((field, other)) => return Err(wrong(field, other, "a text")),
        None => return Err("missing field `question`".to_owned()),
    };
    Ok(Question {
        question: text,
        golds,
        title: title(&record)?,
        popularity: popularity(&record)?,
        evidence: evidence(&record)?,
    })
}

/// Returns the first of two fields that is not null, with its name.
fn first_of<'a>(
    record: &'a Map<String, Value>,
    fields: [&'static str; 2],
) -> Option<(&'static str, &'a Value)> {
    for field in fields {
        match record.get(field) {
            None | Some(Value::Null) => {}
            Some(value) => return Some((field, value)),
        }
    }
    None
}

fn title(record: &Map<String, Value>) -> Result<Option<String>, String> {
    let Some((field, value)) = first_of(record, ["title", "s_wiki_title"]) else { return Ok(None) };
    match value {
        Value::String(text) => Ok(Some(text.clone())),
        // A table stores the title “1984” as a number.
        Value::Number(_) => Ok(Some(scalar_text(value))),
        other => Err(wrong(field, other, "a text")),
    }
}

fn popularity(record: &Map<String, Value>) -> Result<Option<u64>, String> {
    let Some((field, value)) = first_of(record, ["popularity", "s_pop"]) else { return Ok(None) };
    if let Some(number) = value.as_u64() {
        return Ok(Some(number));
    }
    // Tables with gaps store whole numbers as 142.0, and decimals as texts.
    let number = match value {
        Value::String(text) => text.trim().parse().ok(),
        other => other.as_f64(),
    };
    match number {
        Some(number) if number >= 0.0 && number.fract() == 0.0 && number < 2_f64.powi(53) => {
            Ok(Some(number as u64))
        }
        _ => Err(wrong(field, value, "a whole number")),
    }
}

/// Returns the texts of `evidence`, or one text per paragraph of HotpotQA's `context`, which begins
/// with its title.
fn evidence(record: &Map<String, Value>) -> Result<Vec<String>, String> {
    let evidence = match record.get("evidence") {
        None | Some(Value::Null) => return Ok(paragraphs(record.get("context"))),
        Some(evidence) => evidence,
    };
    match evidence {
        Value::String(text) => return Ok(vec![text.clone()]),
        Value::Array(items) => {
            if let Some(texts) = texts(items) {
                return Ok(texts);
            }
        }
        _ => {}
    }
    Err(wrong("evidence", evidence, "a text or a list of texts"))
}

/// Returns the paragraphs of a `context` in one of HotpotQA's two forms: a list of titles next to a
/// list of sentences of each, or a list of pairs. A context of another form has none.
fn paragraphs(context: Option<&Value>) -> Vec<String> {
    let mut rows = Vec::new();
    match context {
        Some(Value::Object(columns)) => {
            let titles = columns.get("title").and_then(Value::as_array);
            let sentences = columns.get("sentences").and_then(Value::as_array);
            for (title, of_title) in
                titles.into_iter().flatten().zip(sentences.into_iter().flatten())
            {
                rows.push([title, of_title]);
            }
        }
        Some(Value::Array(pairs)) => {
            for pair in pairs {
                if let Some([title, sentences]) = pair.as_array().map(Vec::as_slice) {
                    rows.push([title, sentences]);
                }
            }
        }
        _ => {}
    }
    let mut paragraphs = Vec::with_capacity(rows.len());
    for [title, sentences] in rows {
        let sentences = sentences.as_array().and_then(|items| texts(items));
        if let (Some(title), Some(sentences)) = (title.as_str(), sentences) {
            paragraphs.push(format!("{title}: {}", sentences.concat()));
        }
    }
    paragraphs
}

/// Returns the texts of a list; `None` if an item is no text.
fn texts(items: &[Value]) -> Option<Vec<String>> {
    items.iter().map(|item| item.as_str().map(str::to_owned)).collect()
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
            (json!({"answers": "x"}), "missing field `question`"),
            (
                json!({"question": "x", "gold": "y"}),
                "missing field `answers`; its fields are gold, q",
            ),
            (json!({"question": 7, "answer": "x"}), "`question` is 7, not a text"),
            (json!({"question": "x", "answers": [["y"]]}), "`an item of answers` is [\"y\"], not "),
            (json!({"question": "x", "answers": {"en": "y"}}), "`answers` is an object with the "),
            (
                json!({"question": "x", "answers": "['y']"}),
                "`answers` is ['y'], a list or object in",
            ),
            (
                json!({"question": "x", "possible_answers": "a, b"}),
                "`possible_answers` is \"a, b\", not a list of texts, or the JSON text of one",
            ),
            (
                json!({"question": "x", "answer": "y", "title": ["z"]}),
                "`title` is [\"z\"], not a text",
            ),
            (json!({"question": "x", "answer": "y", "s_pop": 0.5}), "`s_pop` is 0.5, not a whole "),
            (
                json!({"question": "x", "answer": "y", "popularity": "many"}),
                "`popularity` is \"many\"",
            ),
            (
                json!({"question": "x", "answer": "y", "evidence": 3}),
                "`evidence` is 3, not a text or",
            ),
            (json!(["x"]), "`record` is [\"x\"], not a JSON object"),
        ] {
            let message = question(record.clone()).unwrap_err();
            assert!(message.starts_with(problem), "{record}: {message}");
        }
    }

    #[test]
    fn every_field_with_golds_is_read() {
        for (record, expected) in [
            (json!({"answers": r#"["a", "b"]"#}), &["a", "b"][..]),
            (json!({"answer": r#"["a", "b"]"#}), &["a", "b"]),
            (json!({"answers": ["a"], "aliases": ["b", "a"]}), &["a", "b"]),
            (json!({"answer": ["a"], "aliases": ["b"]}), &["a", "b"]),
            (json!({"answers": [], "answer": "a"}), &["a"]),
            (json!({"answer": "a", "answer_aliases": ["b"]}), &["a", "b"]),
            (json!({"golden_answers": ["a", "b"]}), &["a", "b"]),
            (json!({"answers": {"text": ["a"], "answer_start": [0]}}), &["a"]),
            (json!({"answer": 142.0}), &["142"]),
            (json!({"answer": {"value": "a"}}), &["a"]),
            (json!({"answer": "Simon &amp; Garfunkel"}), &["Simon & Garfunkel"]),
            (json!({"answer": ""}), &[]),
            (json!({"answer": null}), &[]),
            (json!({"answers": ";"}), &[]),
            (json!({"answer": {"value": "<unk>", "aliases": []}}), &[]),
        ] {
            let mut record = record;
            record["question"] = json!("q");
            assert_eq!(golds(record.clone()), expected, "{record}");
        }
    }

    #[test]
    fn numbers_of_tables_are_read() {
        let row = json!({"question": "q", "answer": 7, "title": 1984, "s_pop": 142.0});
        let row = question(row).unwrap();
        assert_eq!((row.title.as_deref(), row.popularity), (Some("1984"), Some(142)));
        let row = json!({"question": "q", "answer": 7, "title": 1984.0, "s_pop": "142.00"});
        let row = question(row).unwrap();
        assert_eq!((row.title.as_deref(), row.popularity), (Some("1984"), Some(142)));
    }

    #[test]
    fn question_file_of_any_encoding_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("questions.jsonl");
        let lines = "{\"question\": \"ü\", \"answers\": \"a\"}\n";
        let utf16: Vec<u8> =
            format!("\u{feff}{lines}").encode_utf16().flat_map(u16::to_le_bytes).collect();
        for (bytes, number) in [
            (format!("\u{feff}{lines}").into_bytes(), 1),
            (format!("\u{feff}{lines}\u{feff}{lines}").into_bytes(), 2),
            (b"\xef\xbb\xbf[{\"question\": \"\xc3\xbc\", \"answers\": \"a\"}]".to_vec(), 1),
            (utf16, 1),
            (b"{\n  \"question\": \"\xc3\xbc\",\n  \"answers\": \"a\"\n}\n".to_vec(), 1),
        ] {
            std::fs::write(&path, bytes).unwrap();
            let read = read_questions(&path).unwrap();
            assert_eq!((read.len(), read[0].question.as_str()), (number, "ü"));
        }
        std::fs::write(&path, b"PK\x03\x04").unwrap();
        let error = read_questions(&path).unwrap_err().to_string();
        assert!(error.contains("questions.jsonl: it is a ZIP archive"), "{error}");
    }

    /// The file of `host/corpus/tests/parquet.rs`, with columns that cannot be read as questions.
    #[test]
    fn only_fields_of_questions_are_read_from_parquet() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../corpus/tests/assets/odd.parquet");
        let read = read_questions(Path::new(path)).unwrap();
        assert_eq!(read[0].question, "Who kept the light?");
        assert_eq!(read[0].golds, ["Orla Venn", "Ærø"]);
        assert_eq!((read[0].popularity, read[1].popularity), (Some(142), None));
    }
}

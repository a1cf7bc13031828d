//! The golds in a trainer's label, in the shapes of common datasets.

use corver_core::question::split_golds;
use serde_json::{Map, Value, json};

use crate::record::question;

/// Keys of a label whose value is again a label of any shape.
const NESTED: [&str; 4] = ["ground_truth", "target", "golds", "text"];

/// Returns the golds of a label; none if it is null, or an empty text or list.
///
/// A text is separated by `;`, as in a question file, or is the JSON of a list. Each item of a list
/// is a gold; blank ones are ignored. An object is a record of a question file, with or without its
/// question, or nests its golds as verl's, Search-R1's or SQuAD's sets do (`NESTED`).
///
/// # Errors
/// Returns the problem if the label has none of these shapes.
pub fn golds(label: &Value) -> Result<Vec<String>, String> {
    match label {
        Value::Null => Ok(Vec::new()),
        Value::String(text) if text.trim_start().starts_with('[') => {
            match serde_json::from_str(text) {
                Ok(list) => golds(&list),
                // Plain text may begin with a bracket.
                Err(_) => Ok(split_golds(text)),
            }
        }
        Value::String(text) => Ok(split_golds(text)),
        Value::Number(_) | Value::Bool(_) => Ok(vec![label.to_string()]),
        Value::Array(list) => {
            let golds: Vec<String> = list.iter().map(gold).collect::<Result<_, _>>()?;
            Ok(golds.into_iter().filter(|gold| !gold.trim().is_empty()).collect())
        }
        Value::Object(record) => record_golds(record),
    }
}

/// Returns the question in a label, if it has one.
#[must_use]
pub fn question_in(label: &Value) -> Option<&str> {
    label.get("question").or_else(|| label.get("problem")).and_then(Value::as_str)
}

fn gold(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string()),
        _ => Err(format!("a label's list holds {value}, which is no text")),
    }
}

fn record_golds(record: &Map<String, Value>) -> Result<Vec<String>, String> {
    if let Some(nested) = NESTED.iter().find_map(|key| record.get(*key)) {
        return golds(nested);
    }
    // TriviaQA's `answer`, without the record around it.
    let mut record = if record.contains_key("value") {
        json!({ "answer": record })
    } else {
        Value::Object(record.clone())
    };
    if question_in(&record).is_none() {
        record["question"] = json!("");
    }
    question(record)
        .map(|question| question.golds)
        .map_err(|problem| format!("a label is an object, but {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golds_are_read_from_every_label_shape() {
        for (label, expected) in [
            (json!("Paris; Lutetia"), &["Paris", "Lutetia"][..]),
            (json!(["a;b", 7, true]), &["a;b", "7", "true"]),
            (json!(r#"["a", "b"]"#), &["a", "b"]),
            (json!("[a] b"), &["[a] b"]),
            (json!(42), &["42"]),
            (json!({"answers": ["a", "b"]}), &["a", "b"]),
            (json!({"answer": "a", "aliases": ["b"], "question": "q"}), &["a", "b"]),
            (json!({"value": "a", "aliases": ["b"]}), &["a", "b"]),
            (json!({"possible_answers": "[\"a\"]"}), &["a"]),
            (json!({"ground_truth": ["a"]}), &["a"]),
            (json!({"target": ["a", "b"]}), &["a", "b"]),
            (json!({"text": ["a"], "answer_start": [3]}), &["a"]),
            (json!(null), &[]),
            (json!(""), &[]),
            (json!([]), &[]),
            (json!(["", "a", " "]), &["a"]),
        ] {
            assert_eq!(golds(&label).unwrap(), expected, "{label}");
        }
        for label in [json!([["a"]]), json!({"style": "rule"}), json!({"answers": 7})] {
            assert!(golds(&label).is_err(), "{label}");
        }
        assert_eq!(question_in(&json!({"problem": "q", "answer": "a"})), Some("q"));
    }
}

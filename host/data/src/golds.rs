//! The golds of a question, in the shapes of trainers' labels and of published sets. Training,
//! evaluation, server and Python package read golds here alone.

use corver_core::question::split_golds;
use corver_core::text::shorten;
use html_escape::decode_html_entities;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Fields of a record that hold golds. If a record has several, all are golds.
pub(crate) const GOLD_FIELDS: [GoldField; 8] = [
    GoldField { name: "answers", text_form: TextForm::Separated },
    GoldField { name: "answer", text_form: TextForm::One },
    GoldField { name: "aliases", text_form: TextForm::Separated },
    GoldField { name: "answer_aliases", text_form: TextForm::Separated },
    GoldField { name: "golden_answers", text_form: TextForm::Separated },
    GoldField { name: "possible_answers", text_form: TextForm::JsonList },
    GoldField { name: "best_answer", text_form: TextForm::One },
    GoldField { name: "correct_answers", text_form: TextForm::Separated },
];
/// Fields of an object whose value is again a label of any shape. The other fields are then ignored.
const NESTED: [&str; 3] = ["ground_truth", "target", "golds"];
/// Field of an object that has golds only if no other field has any: otherwise it is a passage.
const TEXT: &str = "text";
/// Placeholder of the golds that a test set withholds (TriviaQA).
const WITHHELD: &str = "<unk>";
/// Length limit of a value that a message quotes, characters.
const MAX_QUOTED_CHARS: usize = 60;

/// A field with golds.
pub(crate) struct GoldField {
    pub(crate) name: &'static str,
    text_form: TextForm,
}

/// The meaning of a text that is not the JSON of a list or an object.
enum TextForm {
    /// The text is one gold, as in the published evaluation sets.
    One,
    /// Several golds, separated by `;`.
    Separated,
    /// An error: the field has lists only, also as JSON text.
    JsonList,
}

/// Golds of a field `answers`; see [`golds`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub struct GoldsField(pub Vec<String>);

impl TryFrom<Value> for GoldsField {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        golds_of_field("answers", &value).map(Self)
    }
}

/// Returns the golds of a trainer's label, each once.
///
/// | label | golds |
/// | --- | --- |
/// | text | its parts between `;` |
/// | JSON of a list or an object, as text | those of the list or object |
/// | list | each text; a number is its digits, `142.0` is `142` |
/// | object | a field of `NESTED`, or its fields with golds, as in a question file, or `text` |
///
/// HTML entities are decoded. Blank texts, nulls and `<unk>` are no golds.
///
/// # Errors
/// Returns the problem if the label has none of these shapes.
pub fn golds(label: &Value) -> Result<Vec<String>, String> {
    golds_of_field("label", label)
}

/// Returns the question in a label, if it has one.
#[must_use]
pub fn question_in(label: &Value) -> Option<&str> {
    label.get("question").or_else(|| label.get("problem")).and_then(Value::as_str)
}

/// Returns the golds of a record: those of all its fields with golds. `None`: it has no such field.
pub(crate) fn golds_of_record(record: &Map<String, Value>) -> Result<Option<Vec<String>>, String> {
    let mut golds = Vec::new();
    let mut has_field = false;
    for field in &GOLD_FIELDS {
        if let Some(value) = record.get(field.name) {
            has_field = true;
            add_golds(field, value, &mut golds)?;
        }
    }
    Ok(has_field.then_some(golds))
}

fn golds_of_field(name: &'static str, value: &Value) -> Result<Vec<String>, String> {
    let field = GoldField { name, text_form: TextForm::Separated };
    let mut golds = Vec::new();
    add_golds(&field, value, &mut golds)?;
    Ok(golds)
}

fn add_golds(field: &GoldField, value: &Value, golds: &mut Vec<String>) -> Result<(), String> {
    match value {
        Value::Null => {}
        Value::Bool(_) | Value::Number(_) => add_gold(&scalar_text(value), golds),
        Value::String(text) => {
            if let Some(parsed) = parse_container(field.name, text)? {
                return add_golds(field, &parsed, golds);
            }
            let text = decode_html_entities(text);
            match field.text_form {
                TextForm::One => add_gold(&text, golds),
                TextForm::Separated => {
                    for gold in split_golds(&text) {
                        add_gold(&gold, golds);
                    }
                }
                TextForm::JsonList => {
                    let expected = "a list of texts, or the JSON text of one";
                    return Err(wrong(field.name, value, expected));
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                match item {
                    Value::Null => {}
                    Value::String(text) => add_gold(&decode_html_entities(text), golds),
                    Value::Bool(_) | Value::Number(_) => add_gold(&scalar_text(item), golds),
                    Value::Array(_) | Value::Object(_) => {
                        let what = format!("an item of {}", field.name);
                        return Err(wrong(&what, item, "a text"));
                    }
                }
            }
        }
        Value::Object(object) => add_golds_of_object(field, object, golds)?,
    }
    Ok(())
}

/// Adds the golds of a nested label, or TriviaQA's `value` and the golds of a record, or those of
/// `text`. Nulls are as absent fields.
fn add_golds_of_object(
    field: &GoldField,
    object: &Map<String, Value>,
    golds: &mut Vec<String>,
) -> Result<(), String> {
    let given = |key: &str| object.get(key).filter(|value| !value.is_null());
    if let Some(nested) = NESTED.iter().find_map(|key| given(key)) {
        return add_golds(field, nested, golds);
    }
    if given("value").is_some() || GOLD_FIELDS.iter().any(|known| given(known.name).is_some()) {
        match given("value") {
            None => {}
            Some(Value::String(text)) => add_gold(&decode_html_entities(text), golds),
            Some(other) => add_golds(field, other, golds)?,
        }
        for gold in golds_of_record(object)?.iter().flatten() {
            add_gold(gold, golds);
        }
        return Ok(());
    }
    if let Some(text) = given(TEXT) {
        return add_golds(field, text, golds);
    }
    let is_known = |key: &String| {
        let key = key.as_str();
        NESTED.contains(&key)
            || [TEXT, "value"].contains(&key)
            || GOLD_FIELDS.iter().any(|known| known.name == key)
    };
    if object.keys().any(is_known) {
        return Ok(());
    }
    let names: Vec<&str> = object.keys().map(String::as_str).collect();
    Err(format!(
        "`{}` is an object with the fields {}; golds are in `value` and `aliases`, `text`, \
         `target`, `ground_truth`, or the fields of a question file",
        field.name,
        names.join(", ")
    ))
}

/// Adds a gold, unless it is blank, withheld, or known.
fn add_gold(gold: &str, golds: &mut Vec<String>) {
    let is_gold = !gold.trim().is_empty() && !gold.trim().eq_ignore_ascii_case(WITHHELD);
    if is_gold && !golds.iter().any(|known| known == gold) {
        golds.push(gold.to_owned());
    }
}

/// Returns a number's digits; tables with gaps store whole numbers as 142.0.
pub(crate) fn scalar_text(value: &Value) -> String {
    match value.as_f64() {
        Some(number) if !value.is_u64() && !value.is_i64() && number.fract() == 0.0 => {
            format!("{number:.0}")
        }
        _ => value.to_string(),
    }
}

/// Parses a text that is the JSON of a list or an object; `None` if it is a plain text, which may
/// begin with a bracket.
///
/// # Errors
/// Returns the problem if the text is a list or an object in another notation, such as Python's.
fn parse_container(field: &str, text: &str) -> Result<Option<Value>, String> {
    let text = text.trim();
    let is_enclosed = (text.starts_with('[') && text.ends_with(']'))
        || (text.starts_with('{') && text.ends_with('}'));
    if !is_enclosed {
        return Ok(None);
    }
    match serde_json::from_str(text) {
        Ok(value) => Ok(Some(value)),
        Err(error) if text[1..].trim_start().starts_with(['\'', '"']) => Err(format!(
            "`{field}` is {}, a list or object in a notation other than JSON ({error}); write a \
             JSON list",
            shorten(text, MAX_QUOTED_CHARS)
        )),
        Err(_) => Ok(None),
    }
}

/// Returns the message about a field with a value of another type.
pub(crate) fn wrong(field: &str, value: &Value, expected: &str) -> String {
    format!("`{field}` is {}, not {expected}", shorten(&value.to_string(), MAX_QUOTED_CHARS))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn golds_are_read_from_every_label_shape() {
        for (label, expected) in [
            (json!("Paris; Lutetia"), &["Paris", "Lutetia"][..]),
            (json!(["a;b", 7, true]), &["a;b", "7", "true"]),
            (json!(r#"["a", "b"]"#), &["a", "b"]),
            (json!("[a] b"), &["[a] b"]),
            (json!("[sic]"), &["[sic]"]),
            (json!(42), &["42"]),
            (json!(142.0), &["142"]),
            (json!([1984.0, 0.5, -3]), &["1984", "0.5", "-3"]),
            (json!({"answers": ["a", "b"]}), &["a", "b"]),
            (json!({"answer": "a", "aliases": ["b"], "question": "q"}), &["a", "b"]),
            (json!({"value": "a", "aliases": ["b"]}), &["a", "b"]),
            (json!({"value": "a;b"}), &["a;b"]),
            (json!(r#"{"value": "a", "aliases": ["b"]}"#), &["a", "b"]),
            (json!({"possible_answers": "[\"a\"]"}), &["a"]),
            (json!({"ground_truth": ["a"]}), &["a"]),
            (json!({"target": ["a", "b"]}), &["a", "b"]),
            (json!({"text": ["a"], "answer_start": [3]}), &["a"]),
            (
                json!("Simon &amp; Garfunkel; Paul &#39;Rhymin&#39; Simon"),
                &["Simon & Garfunkel", "Paul 'Rhymin' Simon"],
            ),
            (json!(["Simon &amp; Garfunkel", "AT&T; Bell"]), &["Simon & Garfunkel", "AT&T; Bell"]),
            (json!("<unk>"), &[]),
            (json!(["<UNK> "]), &[]),
            (json!({"value": "<unk>", "aliases": ["<unk>"]}), &[]),
            (json!(null), &[]),
            (json!(""), &[]),
            (json!(" ; "), &[]),
            (json!([]), &[]),
            (json!("[]"), &[]),
            (json!(["", "a", " ", null, "a"]), &["a"]),
        ] {
            assert_eq!(golds(&label).unwrap(), expected, "{label}");
        }
        for (label, problem) in [
            (json!([["a"]]), "`an item of label` is [\"a\"], not a text"),
            (json!({"style": "rule"}), "`label` is an object with the fields style; "),
            (json!({"answers": {"en": "a"}}), "`answers` is an object with the fields en; "),
            (json!("['a', 'b']"), "`label` is ['a', 'b'], a list or object in a notation other "),
        ] {
            let error = golds(&label).unwrap_err();
            assert!(error.starts_with(problem), "{label}: {error}");
        }
        assert_eq!(question_in(&json!({"problem": "q", "answer": "a"})), Some("q"));
    }

    #[test]
    fn text_is_a_gold_only_without_other_fields() {
        for (label, expected) in [
            (json!({"question": "q", "answers": ["Rome"], "text": "A passage."}), &["Rome"][..]),
            (json!({"answer": "Rome", "text": null}), &["Rome"]),
            (json!({"value": "Rome", "text": "A passage."}), &["Rome"]),
            (json!({"answers": [], "text": "A passage."}), &[]),
            (json!({"text": null}), &[]),
            (json!({"answer": null, "ground_truth": "Rome"}), &["Rome"]),
            (json!({"answer": "It is in Italy: Rome.", "ground_truth": "Rome"}), &["Rome"]),
            (json!({"value": null, "text": "Rome"}), &["Rome"]),
            (json!({"ground_truth": null, "answer": null}), &[]),
        ] {
            assert_eq!(golds(&label).unwrap(), expected, "{label}");
        }
    }
}

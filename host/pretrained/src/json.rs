//! JSON as Python writes and reads it: `NaN` and the infinities are numbers.

use std::path::Path;

use serde_json::Value;

use crate::error::{PretrainedError, Result};

/// Names of numbers that Python's `json` accepts and JSON does not have.
const NOT_FINITE: [&str; 3] = ["NaN", "-Infinity", "Infinity"];

/// Reads a JSON file of Hugging Face's libraries. A number that is not finite becomes a text with its
/// name, which is an error only for a key that matters.
///
/// # Errors
/// Fails if the file cannot be read, or is not JSON.
pub fn read_json(path: &Path) -> Result<Value> {
    let text = corver_files::read_text(path).map_err(PretrainedError::io("read", path))?;
    serde_json::from_str(&quote_not_finite(&text))
        .map_err(|error| PretrainedError::malformed(path, "JSON", error))
}

/// Reads a JSON file as [`read_json`] does; null if it does not exist.
pub(crate) fn read_json_if_exists(path: &Path) -> Result<Value> {
    if path.exists() { read_json(path) } else { Ok(Value::Null) }
}

/// Puts numbers that are not finite in quotes.
fn quote_not_finite(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    let mut rest = text;
    let mut in_string = false;
    while let Some(next) = rest.chars().next() {
        if !in_string && let Some(name) = NOT_FINITE.iter().find(|name| rest.starts_with(**name)) {
            quoted += &format!("\"{name}\"");
            rest = &rest[name.len()..];
            continue;
        }
        let mut length = next.len_utf8();
        match next {
            '"' => in_string = !in_string,
            // The next character does not end the string.
            '\\' => length += rest[1..].chars().next().map_or(0, char::len_utf8),
            _ => {}
        }
        quoted += &rest[..length];
        rest = &rest[length..];
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_that_are_not_finite_are_quoted() {
        for (text, expected) in [
            (
                r#"{"a": NaN, "b": [Infinity,-Infinity]}"#,
                r#"{"a": "NaN", "b": ["Infinity","-Infinity"]}"#,
            ),
            (r#"{"NaN": "a NaN \" NaN \\", "é": 1}"#, r#"{"NaN": "a NaN \" NaN \\", "é": 1}"#),
            ("{\"a\": \"\\é\"}", "{\"a\": \"\\é\"}"),
            ("\"\\", "\"\\"),
        ] {
            assert_eq!(quote_not_finite(text), expected);
        }
    }
}

//! Documents in JSON lines, and the lines of `metadata.K`.

use std::fmt::Write;

use corver_files::strip_bom;
use serde_json::Value;

use crate::python_json::{JsonReader, PythonObject, write_string};

/// A document of an input file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ParsedDocument {
    pub(super) text: String,
    /// Other fields, as a JSON object in the format of Python's `json.dumps`.
    pub(super) other_fields: String,
}

/// Parses a line. The error names the problem and the expected form.
pub(super) fn parse(line: &[u8], text_field: &str) -> Result<ParsedDocument, String> {
    // Files that begin with a mark may have been concatenated.
    let line = strip_bom(line);
    if line.trim_ascii().starts_with(b"[") {
        return Err("a JSON array, but each line must be a document: convert the file with \
             `jq -c '.[]' FILE > FILE.jsonl`"
            .to_owned());
    }
    parse_object(line, text_field).map_err(|problem| {
        format!("{problem} (each line must be a JSON object with a string `{text_field}`)")
    })
}

fn parse_object(line: &[u8], text_field: &str) -> Result<ParsedDocument, String> {
    let json = str::from_utf8(line).map_err(|error| error.to_string())?;
    if json.trim().is_empty() {
        return Err("the line is empty".to_owned());
    }
    let mut text_name = String::new();
    write_string(text_field, &mut text_name);
    let mut reader = JsonReader::new(json);
    reader.open_object()?;
    let mut text = None;
    let mut others = PythonObject::default();
    let mut is_first = true;
    while let Some(name) = reader.next_name(is_first)? {
        is_first = false;
        if name == text_name {
            let parsed = reader.text().map_err(|problem| format!("`{text_field}`: {problem}"))?;
            text = Some(parsed);
        } else {
            let mut value = String::new();
            reader.value(&mut value)?;
            others.insert(name, value);
        }
    }
    reader.end()?;
    let Some(text) = text else { return Err(format!("missing field `{text_field}`")) };
    let mut other_fields = String::new();
    others.write(&mut other_fields);
    Ok(ParsedDocument { text, other_fields })
}

/// Returns a line of `metadata.K`. `number` counts from 0; `other_fields` is a JSON object.
pub(super) fn line(file: &str, number: u64, other_fields: &str) -> String {
    let mut line = "{\"path\": ".to_owned();
    write_string(file, &mut line);
    // Writing to a `String` cannot fail.
    let _ = writeln!(line, ", \"linenum\": {number}, \"metadata\": {other_fields}}}");
    line
}

/// Returns a JSON object with fields in their order.
pub(super) fn object(fields: Vec<(String, Value)>) -> Result<String, String> {
    let mut object = PythonObject::default();
    for (name, value) in fields {
        let mut python_name = String::new();
        write_string(&name, &mut python_name);
        let mut python_value = String::new();
        JsonReader::new(&value.to_string()).value(&mut python_value)?;
        object.insert(python_name, python_value);
    }
    let mut json = String::new();
    object.write(&mut json);
    Ok(json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_preserves_field_order_and_escapes_ascii() {
        let json = r#"{"title": "Æon \"𝄞\"\n", "text": "a", "n": [1, -2, 0.5, [], {}], "b": {"y": null, "x": true}}"#;
        let parsed = parse(json.as_bytes(), "text").unwrap();
        assert_eq!(parsed.text, "a");
        let fields = r#"{"title": "\u00c6on \"\ud834\udd1e\"\n", "n": [1, -2, 0.5, [], {}], "b": {"y": null, "x": true}}"#;
        assert_eq!(parsed.other_fields, fields);
        assert_eq!(
            line("a.jsonl", 7, "{}"),
            "{\"path\": \"a.jsonl\", \"linenum\": 7, \"metadata\": {}}\n"
        );
    }

    #[test]
    fn text_field_name_is_configurable() {
        let parsed = parse(br#"{"text": 1, "body": "a"}"#, "body").unwrap();
        assert_eq!((parsed.text.as_str(), parsed.other_fields.as_str()), ("a", r#"{"text": 1}"#));
        assert!(parse(br#"{"text": "a"}"#, "body").unwrap_err().contains("`body`"));
    }

    #[test]
    fn invalid_line_error_names_problem() {
        for (line, problem) in [
            ("", "empty"),
            ("[1]", "jq -c"),
            ("1", "a JSON object"),
            ("{\"title\": 1}", "missing field `text`"),
            ("{\"text\": 1}", "expected a string"),
            ("{\"text\": \"a\"", "the line ends"),
            ("{\"text\": \"a\"} {}", "trailing"),
        ] {
            let message = parse(line.as_bytes(), "text").unwrap_err();
            assert!(message.contains(problem), "{line}: {message}");
        }
    }

    #[test]
    fn value_that_only_python_reads_is_metadata() {
        let json = "\u{feff}{\"text\": \"a\", \"n\": NaN, \"s\": \"\\ud800\", \"text\": \"b\"}";
        let parsed = parse(json.as_bytes(), "text").unwrap();
        let expected = (r"b", r#"{"n": NaN, "s": "\ud800"}"#);
        assert_eq!((parsed.text.as_str(), parsed.other_fields.as_str()), expected);
        let problem = parse(br#"{"text": "\ud800"}"#, "text").unwrap_err();
        assert!(problem.starts_with("`text`: "), "{problem}");
    }
}

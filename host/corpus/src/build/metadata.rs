//! Lines of JSONL, and lines of `metadata.K` in the format of Python's `json.dumps`.
//!
//! The order of fields is preserved, so values are transcribed without a sorted map. Strings are
//! escaped to ASCII: the official builder counts `metaoff.K` in characters, which are then bytes.

use std::fmt::{self, Write};

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// A document of an input file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ParsedDocument {
    pub(super) text: String,
    /// Other fields, as a JSON object.
    pub(super) other_fields: String,
}

/// Parses a line. The error names the problem and the expected form.
pub(super) fn parse(line: &[u8], text_field: &str) -> Result<ParsedDocument, String> {
    parse_object(line, text_field).map_err(|problem| {
        format!("{problem} (each line must be a JSON object with a string `{text_field}`)")
    })
}

fn parse_object(line: &[u8], text_field: &str) -> Result<ParsedDocument, String> {
    if line.trim_ascii().is_empty() {
        return Err("the line is empty".to_owned());
    }
    let mut json = serde_json::Deserializer::from_slice(line);
    let parsed =
        DocumentVisitor { text_field }.deserialize(&mut json).map_err(|error| error.to_string())?;
    json.end().map_err(|error| error.to_string())?;
    Ok(parsed)
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
pub(super) fn object(fields: Vec<(String, Value)>) -> serde_json::Result<String> {
    let mut object = "{".to_owned();
    for (name, value) in fields {
        separate(&mut object);
        write_string(&name, &mut object);
        object.push_str(": ");
        Transcribe(&mut object).deserialize(value)?;
    }
    object.push('}');
    Ok(object)
}

/// A deserialiser of documents.
struct DocumentVisitor<'n> {
    text_field: &'n str,
}

impl<'de> DeserializeSeed<'de> for DocumentVisitor<'_> {
    type Value = ParsedDocument;

    fn deserialize<D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<ParsedDocument, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for DocumentVisitor<'_> {
    type Value = ParsedDocument;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ParsedDocument, A::Error> {
        let mut text = None;
        let mut other_fields = "{".to_owned();
        while let Some(key) = map.next_key::<String>()? {
            if key == self.text_field {
                text = Some(map.next_value::<String>()?);
                continue;
            }
            separate(&mut other_fields);
            write_string(&key, &mut other_fields);
            other_fields.push_str(": ");
            map.next_value_seed(Transcribe(&mut other_fields))?;
        }
        other_fields.push('}');
        match text {
            Some(text) => Ok(ParsedDocument { text, other_fields }),
            None => Err(A::Error::custom(format_args!("missing field `{}`", self.text_field))),
        }
    }
}

/// A deserialiser that writes any JSON value to a string.
struct Transcribe<'s>(&'s mut String);

impl<'de> DeserializeSeed<'de> for Transcribe<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Transcribe<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.0.push_str("null");
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.0.push_str(if value { "true" } else { "false" });
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        let _ = write!(self.0, "{value}");
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        let _ = write!(self.0, "{value}");
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        // As in Python: the shortest digits that round-trip.
        let _ = write!(self.0, "{value:?}");
        Ok(())
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        write_string(value, self.0);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<(), A::Error> {
        self.0.push('[');
        let start = self.0.len();
        loop {
            let before = self.0.len();
            if before > start {
                self.0.push_str(", ");
            }
            if sequence.next_element_seed(Transcribe(self.0))?.is_none() {
                self.0.truncate(before);
                break;
            }
        }
        self.0.push(']');
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.0.push('{');
        while let Some(key) = map.next_key::<String>()? {
            separate(self.0);
            write_string(&key, self.0);
            self.0.push_str(": ");
            map.next_value_seed(Transcribe(self.0))?;
        }
        self.0.push('}');
        Ok(())
    }
}

/// Appends a comma, unless an object was just opened.
fn separate(out: &mut String) {
    if !out.ends_with('{') {
        out.push_str(", ");
    }
}

fn write_string(value: &str, out: &mut String) {
    out.push('"');
    for c in value.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            ' '..='\u{7f}' => out.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
    out.push('"');
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
            ("[1]", "a JSON object"),
            ("{\"title\": 1}", "missing field `text`"),
            ("{\"text\": 1}", "expected a string"),
            ("{\"text\": \"a\"", "EOF"),
            ("{\"text\": \"a\"} {}", "trailing"),
        ] {
            let message = parse(line.as_bytes(), "text").unwrap_err();
            assert!(message.contains(problem), "{line}: {message}");
        }
    }
}

//! JSON as Python's `json` module reads and writes it.
//!
//! A value is transcribed to what `json.dumps(json.loads(value))` returns, which is the format of
//! `metadata.K`. Python reads more than the standard: `NaN`, `Infinity`, integers of any size, and
//! surrogates without a partner. Of two fields with the same name, the last value counts. Strings
//! are escaped to ASCII: the official builder counts `metaoff.K` in characters, which then are
//! bytes.

use std::fmt::Write;

use rustc_hash::FxHashMap;
use serde_json::Value;

/// Deepest nesting of arrays and objects. Python's own limit is about 1,000.
const MAX_DEPTH: usize = 500;

/// The fields of an object as Python writes them, in the order of their first occurrence.
#[derive(Debug, Default)]
pub(crate) struct PythonObject {
    fields: Vec<PythonField>,
    /// Index of each field by its name.
    indexes: FxHashMap<String, usize>,
}

#[derive(Debug)]
struct PythonField {
    /// Name with quotation marks and escapes.
    name: String,
    value: String,
}

impl PythonObject {
    /// Adds a field, or replaces its value. Name and value are as Python writes them.
    pub(crate) fn insert(&mut self, name: String, value: String) {
        match self.indexes.get(&name) {
            Some(&index) => self.fields[index].value = value,
            None => {
                self.indexes.insert(name.clone(), self.fields.len());
                self.fields.push(PythonField { name, value });
            }
        }
    }

    /// Appends the object to a text.
    pub(crate) fn write(&self, out: &mut String) {
        out.push('{');
        for (index, PythonField { name, value }) in self.fields.iter().enumerate() {
            if index > 0 {
                out.push_str(", ");
            }
            out.push_str(name);
            out.push_str(": ");
            out.push_str(value);
        }
        out.push('}');
    }
}

/// A reader of JSON. The errors name the problem and its column.
pub(crate) struct JsonReader<'t> {
    text: &'t str,
    /// Byte offset of the next character.
    at: usize,
}

impl<'t> JsonReader<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    /// Reads the start of an object.
    pub(crate) fn open_object(&mut self) -> Result<(), String> {
        if self.peek() != Some(b'{') {
            return Err(self.problem("expected a JSON object"));
        }
        self.at += 1;
        Ok(())
    }

    /// Reads the name of the next field, and the colon after it. `None` at the end of the object.
    pub(crate) fn next_name(&mut self, is_first: bool) -> Result<Option<String>, String> {
        if !self.next_item(is_first, b'}')? {
            return Ok(None);
        }
        if self.peek() != Some(b'"') {
            return Err(self.problem("expected the name of a field"));
        }
        let mut name = String::new();
        self.string(&mut name)?;
        if self.peek() != Some(b':') {
            return Err(self.problem("expected a colon"));
        }
        self.at += 1;
        Ok(Some(name))
    }

    /// Reads a value, and appends it as Python writes it.
    pub(crate) fn value(&mut self, out: &mut String) -> Result<(), String> {
        self.nested_value(out, 0)
    }

    /// Reads a string, and returns its text.
    pub(crate) fn text(&mut self) -> Result<String, String> {
        if self.peek() != Some(b'"') {
            return Err(self.problem("expected a string"));
        }
        let start = self.at;
        self.at += 1;
        loop {
            match self.text.as_bytes().get(self.at) {
                Some(b'"') => break,
                Some(b'\\') => self.at += 2,
                Some(_) => self.at += 1,
                None => return Err(self.problem("the string has no end")),
            }
        }
        self.at += 1;
        serde_json::from_str(&self.text[start..self.at]).map_err(|_| {
            let problem =
                "an invalid escape, a lone surrogate or a control character in the string";
            Self { text: self.text, at: start }.problem(problem)
        })
    }

    /// Checks that only white space is left.
    pub(crate) fn end(&mut self) -> Result<(), String> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.problem("trailing characters")),
        }
    }

    fn nested_value(&mut self, out: &mut String, depth: usize) -> Result<(), String> {
        match self.peek() {
            Some(b'{' | b'[') if depth == MAX_DEPTH => Err(self.problem("nested too deeply")),
            Some(b'{') => self.object(out, depth + 1),
            Some(b'[') => self.array(out, depth + 1),
            Some(b'"') => self.string(out),
            Some(b'-' | b'0'..=b'9') => self.number(out),
            Some(_) => self.word(out),
            None => Err(self.problem("expected a value")),
        }
    }

    fn object(&mut self, out: &mut String, depth: usize) -> Result<(), String> {
        self.open_object()?;
        let mut object = PythonObject::default();
        let mut is_first = true;
        while let Some(name) = self.next_name(is_first)? {
            is_first = false;
            let mut value = String::new();
            self.nested_value(&mut value, depth)?;
            object.insert(name, value);
        }
        object.write(out);
        Ok(())
    }

    fn array(&mut self, out: &mut String, depth: usize) -> Result<(), String> {
        self.at += 1;
        out.push('[');
        let mut is_first = true;
        while self.next_item(is_first, b']')? {
            if !is_first {
                out.push_str(", ");
            }
            is_first = false;
            self.nested_value(out, depth)?;
        }
        out.push(']');
        Ok(())
    }

    /// Reads the comma before an item. Returns false, and reads `end`, if there is no further item.
    fn next_item(&mut self, is_first: bool, end: u8) -> Result<bool, String> {
        match self.peek() {
            Some(byte) if byte == end => {
                self.at += 1;
                Ok(false)
            }
            Some(_) if is_first => Ok(true),
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            Some(_) => Err(self.problem("expected a comma")),
            None => Err(self.problem("the line ends too early")),
        }
    }

    fn string(&mut self, out: &mut String) -> Result<(), String> {
        self.at += 1;
        out.push('"');
        loop {
            let rest = &self.text[self.at..];
            let length = rest.find(|c| matches!(c, '"' | '\\' | '\0'..='\x1f'));
            let Some(length) = length else { return Err(self.problem("the string has no end")) };
            write_characters(&rest[..length], out);
            self.at += length;
            match rest.as_bytes()[length] {
                b'"' => {
                    self.at += 1;
                    out.push('"');
                    return Ok(());
                }
                b'\\' => self.escape(out)?,
                _ => return Err(self.problem("a control character in a string")),
            }
        }
    }

    fn escape(&mut self, out: &mut String) -> Result<(), String> {
        let rest = &self.text.as_bytes()[self.at..];
        let (escaped, length) = match rest.get(1) {
            Some(b'u') => {
                let digits =
                    rest.get(2..6).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
                let digits = digits.and_then(|digits| str::from_utf8(digits).ok());
                let unit = digits.and_then(|digits| u16::from_str_radix(digits, 16).ok());
                (unit, 6)
            }
            Some(b'"') => (Some(b'"'.into()), 2),
            Some(b'\\') => (Some(b'\\'.into()), 2),
            Some(b'/') => (Some(b'/'.into()), 2),
            Some(b'b') => (Some(0x08), 2),
            Some(b'f') => (Some(0x0c), 2),
            Some(b'n') => (Some(b'\n'.into()), 2),
            Some(b'r') => (Some(b'\r'.into()), 2),
            Some(b't') => (Some(b'\t'.into()), 2),
            _ => (None, 0),
        };
        let Some(unit) = escaped else { return Err(self.problem("an invalid escape")) };
        write_unit(unit, out);
        self.at += length;
        Ok(())
    }

    fn number(&mut self, out: &mut String) -> Result<(), String> {
        let start = self.at;
        let rest = &self.text.as_bytes()[start..];
        let mut length = usize::from(rest[0] == b'-');
        if rest[length..].starts_with(b"Infinity") {
            self.at += length;
            out.push('-');
            return self.word(out);
        }
        let integer_digits = match rest.get(length) {
            Some(b'0') => 1,
            _ => count_digits(&rest[length..]),
        };
        if integer_digits == 0 {
            return Err(self.problem("expected a value"));
        }
        length += integer_digits;
        let integer_length = length;
        if rest.get(length) == Some(&b'.') {
            let digits = count_digits(&rest[length + 1..]);
            if digits > 0 {
                length += 1 + digits;
            }
        }
        if matches!(rest.get(length), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(rest.get(length + 1), Some(b'+' | b'-')));
            let digits = count_digits(&rest[length + 1 + sign..]);
            if digits > 0 {
                length += 1 + sign + digits;
            }
        }
        self.at += length;
        let number = &self.text[start..self.at];
        if length == integer_length {
            out.push_str(if number == "-0" { "0" } else { number });
            return Ok(());
        }
        let value: f64 = number.parse().map_err(|_| self.problem("an invalid number"))?;
        write_float(value, out);
        Ok(())
    }

    fn word(&mut self, out: &mut String) -> Result<(), String> {
        for word in ["true", "false", "null", "NaN", "Infinity"] {
            if self.text[self.at..].starts_with(word) {
                self.at += word.len();
                out.push_str(word);
                return Ok(());
            }
        }
        Err(self.problem("expected a value"))
    }

    /// Skips white space, and returns the next byte.
    fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while matches!(bytes.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        bytes.get(self.at).copied()
    }

    fn problem(&self, problem: &str) -> String {
        if self.at >= self.text.trim_end().len() {
            return format!("{problem}, but the line ends");
        }
        format!("{problem} at column {}", self.at + 1)
    }
}

/// Parses JSON that Python wrote. What the standard does not have becomes null (`NaN`, `Infinity`)
/// or the replacement character (a surrogate without a partner).
///
/// # Errors
/// Fails if Python would not read it either.
pub(crate) fn parse(json: &str) -> Result<Value, String> {
    if let Ok(value) = serde_json::from_str(json) {
        return Ok(value);
    }
    let mut reader = JsonReader::new(json);
    let mut written = String::new();
    reader.value(&mut written)?;
    reader.end()?;
    serde_json::from_str(&standard(&written)).map_err(|error| error.to_string())
}

/// Replaces what the standard does not have in a text of [`JsonReader::value`].
fn standard(written: &str) -> String {
    let mut standard = String::with_capacity(written.len());
    let mut in_string = false;
    let mut rest = written;
    while !rest.is_empty() {
        let (length, replacement) = match rest.as_bytes() {
            [b'\\', b'u', ..] if high_surrogate(rest) && low_surrogate(&rest[6..]) => (12, None),
            [b'\\', b'u', ..] if high_surrogate(rest) || low_surrogate(rest) => {
                (6, Some("\\ufffd"))
            }
            [b'\\', ..] => (2, None),
            [b'"', ..] => {
                in_string = !in_string;
                (1, None)
            }
            [b'-', b'I', ..] if !in_string => ("-Infinity".len(), Some("null")),
            [b'I', ..] if !in_string => ("Infinity".len(), Some("null")),
            [b'N', ..] if !in_string => ("NaN".len(), Some("null")),
            _ => (1, None),
        };
        standard.push_str(replacement.unwrap_or(&rest[..length]));
        rest = &rest[length..];
    }
    standard
}

fn high_surrogate(text: &str) -> bool {
    ["\\ud8", "\\ud9", "\\uda", "\\udb"].iter().any(|start| text.starts_with(start))
}

fn low_surrogate(text: &str) -> bool {
    ["\\udc", "\\udd", "\\ude", "\\udf"].iter().any(|start| text.starts_with(start))
}

/// Returns a string as Python writes it.
pub(crate) fn write_string(text: &str, out: &mut String) {
    out.push('"');
    write_characters(text, out);
    out.push('"');
}

fn write_characters(text: &str, out: &mut String) {
    for c in text.chars() {
        for &mut unit in c.encode_utf16(&mut [0; 2]) {
            write_unit(unit, out);
        }
    }
}

/// Writes a unit of UTF-16. Writing to a `String` cannot fail.
fn write_unit(unit: u16, out: &mut String) {
    match u8::try_from(unit) {
        Ok(b'"') => out.push_str("\\\""),
        Ok(b'\\') => out.push_str("\\\\"),
        Ok(b'\n') => out.push_str("\\n"),
        Ok(b'\r') => out.push_str("\\r"),
        Ok(b'\t') => out.push_str("\\t"),
        Ok(0x08) => out.push_str("\\b"),
        Ok(0x0c) => out.push_str("\\f"),
        Ok(ascii @ b' '..=b'~') => out.push(ascii.into()),
        _ => {
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
}

/// Writes a number as Python's `repr` does: the shortest digits that round-trip, with an exponent of
/// two digits or more if it is below -4 or above 15.
fn write_float(value: f64, out: &mut String) {
    if value.is_infinite() {
        out.push_str(if value > 0.0 { "Infinity" } else { "-Infinity" });
        return;
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let _ = if (-4..16).contains(&exponent) {
        write!(out, "{value:?}")
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(out, "{digits}e{sign}{:02}", exponent.abs())
    };
}

fn count_digits(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transcribed(json: &str) -> Result<String, String> {
        let mut reader = JsonReader::new(json);
        let mut out = String::new();
        reader.value(&mut out)?;
        reader.end()?;
        Ok(out)
    }

    /// Right: what `json.dumps(json.loads(left))` of Python 3.11 returned.
    #[test]
    fn values_are_those_of_python() {
        for (json, python) in [
            (r"1e-05", r"1e-05"),
            (r"0.00001", r"1e-05"),
            (r"0.0001", r"0.0001"),
            (r"1e16", r"1e+16"),
            (r"1e15", r"1000000000000000.0"),
            (r"123456789012345680.0", r"1.2345678901234568e+17"),
            (r"1e400", r"Infinity"),
            (r"-1e400", r"-Infinity"),
            (r"1.5e-7", r"1.5e-07"),
            (r"5e-324", r"5e-324"),
            (r"1.7976931348623157e308", r"1.7976931348623157e+308"),
            (r"0.1", r"0.1"),
            (r"-0.0", r"-0.0"),
            (r"-0", r"0"),
            (r"0", r"0"),
            (r"1E5", r"100000.0"),
            (r"1e5", r"100000.0"),
            (r"2.50", r"2.5"),
            (r"18446744073709551616", r"18446744073709551616"),
            (r"-9223372036854775809", r"-9223372036854775809"),
            (r"123456789012345678901234567890", r"123456789012345678901234567890"),
            (r"NaN", r"NaN"),
            (r"[Infinity,-Infinity]", r"[Infinity, -Infinity]"),
            ("\"\u{7f}\u{80}€𝄞/\"", r#""\u007f\u0080\u20ac\ud834\udd1e/""#),
            (r#""\ud800""#, r#""\ud800""#),
            (r#""\udc00\ud800x""#, r#""\udc00\ud800x""#),
            (r#""\ud834\udd1e""#, r#""\ud834\udd1e""#),
            (r#""\/\b\f\n\r\t\"\\\u0000\u007f\u0041""#, r#""/\b\f\n\r\t\"\\\u0000\u007fA""#),
            (r#"{"a":1,"b":2,"a":3}"#, r#"{"a": 3, "b": 2}"#),
            (r#"{"a":1,"\u0061":[2]}"#, r#"{"a": [2]}"#),
            (r#"{"a":{"x":1,"x":{}},"":null}"#, r#"{"a": {"x": {}}, "": null}"#),
            (r" [ 1 ,true, false,null , [ ] , { } ] ", r"[1, true, false, null, [], {}]"),
            (r#"{"Æ": "é"}"#, r#"{"\u00c6": "\u00e9"}"#),
            (r"9007199254740993.0", r"9007199254740992.0"),
            (r"1.0e+2", r"100.0"),
            (r"0e0", r"0.0"),
            (r"-0e5", r"-0.0"),
            (r"100000000000000000000.5", r"1e+20"),
        ] {
            assert_eq!(transcribed(json).as_deref(), Ok(python), "{json}");
        }
    }

    #[test]
    fn values_of_python_are_parsed() {
        let json = r#"{"a": [NaN, -Infinity, "NaN \"Infinity"], "b": "\ud800\ud83d\ude00\udc00\\ud800", "b2": 1e400}"#;
        let expected = serde_json::json!({
            "a": [null, null, "NaN \"Infinity"], "b": "\u{fffd}😀\u{fffd}\\ud800", "b2": null,
        });
        assert_eq!(parse(json).unwrap(), expected);
        assert!(parse("{").is_err() && parse("[NaN] 1").is_err());
    }

    /// Python raises `JSONDecodeError` for each.
    #[test]
    fn invalid_json_is_refused() {
        for json in [
            "",
            "{",
            "[1,",
            "[1 2]",
            "{\"a\" 1}",
            "{a: 1}",
            "{\"a\": 1,}",
            "01",
            "-",
            "1.",
            ".5",
            "1e",
            "+1",
            "nul",
            "\"a",
            "\"\n\"",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\u+123\"",
            "\"\\",
            "--1",
            "-Inf",
            "{\"a\": 1} 2",
            "\u{a0}1",
        ] {
            assert!(transcribed(json).is_err(), "{json:?}");
        }
        let deep = "[".repeat(1_000_000);
        assert!(transcribed(&deep).unwrap_err().contains("nested too deeply"));
    }
}

//! Values as Python prints them: `str`, `repr` and `json.dumps`. A template's prompt contains what its
//! author saw there.

use std::cmp::Ordering;
use std::fmt::Write;
use std::sync::LazyLock;

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};
use regex::Regex;

/// Returns `str(value)`; an undefined value is empty, as in Jinja.
pub(super) fn to_str(value: &Value) -> String {
    match value.as_str() {
        Some(text) => text.to_owned(),
        None if value.is_undefined() => String::new(),
        None => to_repr(value),
    }
}

/// Returns `repr(value)`.
fn to_repr(value: &Value) -> String {
    if let Some(text) = value.as_str() {
        return repr_of_text(text);
    }
    match value.kind() {
        ValueKind::None => "None".to_owned(),
        ValueKind::Undefined => "Undefined".to_owned(),
        ValueKind::Bool => (if value.is_true() { "True" } else { "False" }).to_owned(),
        ValueKind::Number => number(value),
        ValueKind::Seq => {
            let items: Vec<String> = iter(value).map(|item| to_repr(&item)).collect();
            match (value.is_tuple(), items.as_slice()) {
                (true, [only]) => format!("({only},)"),
                (true, _) => format!("({})", items.join(", ")),
                (false, _) => format!("[{}]", items.join(", ")),
            }
        }
        ValueKind::Map => {
            let mut items = Vec::new();
            for key in iter(value) {
                let item = value.get_item(&key).unwrap_or_default();
                items.push(format!("{}: {}", to_repr(&key), to_repr(&item)));
            }
            format!("{{{}}}", items.join(", "))
        }
        _ => value.to_string(),
    }
}

fn iter(value: &Value) -> impl Iterator<Item = Value> {
    value.try_iter().into_iter().flatten()
}

/// A character that Python's `str.isprintable` refuses.
static UNPRINTABLE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"[\p{C}\p{Z}--\x20]").expect("the pattern is a regular expression")
});

/// Returns a text in quotes, with Python's choice of quotes.
fn repr_of_text(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut repr = String::from(quote);
    for c in text.chars() {
        match c {
            '\\' => repr.push_str("\\\\"),
            '\n' => repr.push_str("\\n"),
            '\r' => repr.push_str("\\r"),
            '\t' => repr.push_str("\\t"),
            c if c == quote => {
                repr.push('\\');
                repr.push(c);
            }
            c if UNPRINTABLE.is_match(c.encode_utf8(&mut [0; 4])) => {
                let code = u32::from(c);
                // A String takes any text.
                let _ = match code {
                    ..=0xFF => write!(repr, "\\x{code:02x}"),
                    0x100..=0xFFFF => write!(repr, "\\u{code:04x}"),
                    _ => write!(repr, "\\U{code:08x}"),
                };
            }
            c => repr.push(c),
        }
    }
    repr.push(quote);
    repr
}

/// Returns the text of a number, which is the same for `str`, `repr` and `json.dumps`.
fn number(value: &Value) -> String {
    match f64::try_from(value.clone()) {
        Ok(float) if !value.is_integer() => float_repr(float),
        _ => value.to_string(),
    }
}

/// Returns `repr` of a float: the shortest digits, in scientific notation from 1e16 and below 1e-4.
fn float_repr(float: f64) -> String {
    if float.is_nan() {
        return "nan".to_owned();
    }
    if float.is_infinite() {
        return (if float > 0.0 { "inf" } else { "-inf" }).to_owned();
    }
    if float == 0.0 || (1e-4..1e16).contains(&float.abs()) {
        let text = float.to_string();
        return if text.contains('.') { text } else { format!("{text}.0") };
    }
    let text = format!("{float:e}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let power: i32 = exponent.parse().unwrap_or_default();
            let sign = if power < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", power.abs())
        }
        None => text,
    }
}

/// The filter `tojson` of `transformers`: `json.dumps` with its options, in its order of arguments.
pub(super) fn tojson(
    value: &Value,
    ensure_ascii: Option<Value>,
    indent: Option<Value>,
    separators: Option<Value>,
    options: Kwargs,
) -> Result<String, Error> {
    let option = |position: Option<Value>, name: &str| match position {
        Some(given) => Ok(given),
        None => options.get::<Option<Value>>(name).map(Option::unwrap_or_default),
    };
    let indent = option(indent, "indent")?;
    let indent = match indent.as_str() {
        Some(text) => Some(text.to_owned()),
        None if indent.is_none() || indent.is_undefined() => None,
        None if indent.kind() == ValueKind::Bool => Some(" ".repeat(indent.is_true().into())),
        None => {
            let width = i64::try_from(indent)?;
            Some(" ".repeat(usize::try_from(width).unwrap_or_default().min(MAX_INDENT)))
        }
    };
    let separators = option(separators, "separators")?;
    let mut item_separator = if indent.is_some() { "," } else { ", " }.to_owned();
    let mut key_separator = ": ".to_owned();
    if !separators.is_none() && !separators.is_undefined() {
        let texts: Vec<String> =
            iter(&separators).filter_map(|text| text.as_str().map(str::to_owned)).collect();
        let [item, key] = <[String; 2]>::try_from(texts)
            .map_err(|_| invalid("`separators` of tojson are two texts"))?;
        item_separator = item;
        key_separator = key;
    }
    let writer = JsonWriter {
        ensure_ascii: option(ensure_ascii, "ensure_ascii")?.is_true(),
        sort_keys: option(None, "sort_keys")?.is_true(),
        indent,
        item_separator,
        key_separator,
    };
    options.assert_all_used()?;
    let mut json = String::new();
    writer.write(value, 0, &mut json)?;
    Ok(json)
}

/// Widest indentation.
const MAX_INDENT: usize = 64;
/// Deepest nesting, as of the JSON that templates get.
const MAX_DEPTH: usize = 128;

struct JsonWriter {
    ensure_ascii: bool,
    sort_keys: bool,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
}

impl JsonWriter {
    fn write(&self, value: &Value, depth: usize, json: &mut String) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(invalid("a value of tojson is nested too deeply"));
        }
        if let Some(text) = value.as_str() {
            self.write_text(text, json);
            return Ok(());
        }
        match value.kind() {
            ValueKind::None => json.push_str("null"),
            ValueKind::Bool => json.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => json.push_str(&json_number(value)),
            ValueKind::Seq => {
                json.push('[');
                let mut is_empty = true;
                for item in iter(value) {
                    self.begin_item(is_empty, depth, json);
                    self.write(&item, depth + 1, json)?;
                    is_empty = false;
                }
                self.end(is_empty, depth, json);
                json.push(']');
            }
            ValueKind::Map => {
                json.push('{');
                let mut is_empty = true;
                let mut keys: Vec<Value> = iter(value).collect();
                if self.sort_keys {
                    keys.sort_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
                }
                for key in keys {
                    self.begin_item(is_empty, depth, json);
                    let name = match key.kind() {
                        ValueKind::String => key.as_str().unwrap_or_default().to_owned(),
                        ValueKind::None => "null".to_owned(),
                        ValueKind::Bool if key.is_true() => "true".to_owned(),
                        ValueKind::Bool => "false".to_owned(),
                        _ => json_number(&key),
                    };
                    self.write_text(&name, json);
                    json.push_str(&self.key_separator);
                    self.write(&value.get_item(&key)?, depth + 1, json)?;
                    is_empty = false;
                }
                self.end(is_empty, depth, json);
                json.push('}');
            }
            kind => return Err(invalid(format!("tojson cannot write a value of the kind {kind}"))),
        }
        Ok(())
    }

    fn begin_item(&self, is_first: bool, depth: usize, json: &mut String) {
        if !is_first {
            json.push_str(&self.item_separator);
        }
        self.begin_line(depth + 1, json);
    }

    fn end(&self, is_empty: bool, depth: usize, json: &mut String) {
        if !is_empty {
            self.begin_line(depth, json);
        }
    }

    fn begin_line(&self, depth: usize, json: &mut String) {
        if let Some(indent) = &self.indent {
            json.push('\n');
            json.push_str(&indent.repeat(depth));
        }
    }

    fn write_text(&self, text: &str, json: &mut String) {
        json.push('"');
        for c in text.chars() {
            match c {
                '"' => json.push_str("\\\""),
                '\\' => json.push_str("\\\\"),
                '\n' => json.push_str("\\n"),
                '\r' => json.push_str("\\r"),
                '\t' => json.push_str("\\t"),
                '\u{8}' => json.push_str("\\b"),
                '\u{c}' => json.push_str("\\f"),
                c if c < ' ' || (self.ensure_ascii && !(' '..='~').contains(&c)) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        let _ = write!(json, "\\u{unit:04x}"); // a String takes any text
                    }
                }
                c => json.push(c),
            }
        }
        json.push('"');
    }
}

fn json_number(value: &Value) -> String {
    match number(value).as_str() {
        "nan" => "NaN".to_owned(),
        "inf" => "Infinity".to_owned(),
        "-inf" => "-Infinity".to_owned(),
        finite => finite.to_owned(),
    }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

//! Methods of Python's texts, lists and dictionaries in templates. `minijinja-contrib` has most.

use minijinja::value::{Tuple, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

/// Widest text that padding makes.
const MAX_WIDTH: usize = 1 << 16;

/// Calls a method of a value that the template engine does not know.
pub(super) fn call(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    if let Some(text) = value.as_str()
        && let Some(result) = text_method(text, method, args)?
    {
        return Ok(result);
    }
    match (value.kind(), method) {
        (ValueKind::Seq, "index") => {
            let (wanted,): (Value,) = from_args(args)?;
            let index = value.try_iter()?.position(|item| item == wanted);
            index.map(Value::from).ok_or_else(|| not_found("list.index"))
        }
        (ValueKind::Seq | ValueKind::Map, "copy") => {
            from_args::<()>(args)?;
            Ok(value.clone()) // values do not change
        }
        _ => unknown_method_callback(state, value, method, args),
    }
}

fn text_method(text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let result = match method {
        "rsplit" => {
            let (separator, limit): (Option<&str>, Option<i64>) = from_args(args)?;
            Value::from(rsplit(text, separator, limit)?)
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "partition" => {
            let (separator,): (&str,) = from_args(args)?;
            match text.split_once(non_empty(separator)?) {
                Some((before, after)) => parts([before, separator, after]),
                None => parts([text, "", ""]),
            }
        }
        "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            match text.rsplit_once(non_empty(separator)?) {
                Some((before, after)) => parts([before, separator, after]),
                None => parts(["", "", text]),
            }
        }
        "index" | "rindex" => {
            let (wanted,): (&str,) = from_args(args)?;
            let byte = if method == "index" { text.find(wanted) } else { text.rfind(wanted) };
            let byte = byte.ok_or_else(|| not_found("str.index"))?;
            Value::from(text[..byte].chars().count())
        }
        "zfill" => {
            let (width,): (usize,) = from_args(args)?;
            let sign = text.len() - text.trim_start_matches(['+', '-']).len();
            let (sign, digits) = text.split_at(sign.min(1));
            Value::from(format!("{sign}{}{digits}", padding(text, width, '0')))
        }
        "ljust" | "rjust" | "center" => {
            let (width, fill): (usize, Option<char>) = from_args(args)?;
            let fill = padding(text, width, fill.unwrap_or(' '));
            // Python puts the odd character on the left if the width is odd too.
            let count = fill.chars().count();
            let left = match method {
                "ljust" => 0,
                "rjust" => count,
                _ => count / 2 + (count & width & 1),
            };
            let before: String = fill.chars().take(left).collect();
            let after: String = fill.chars().skip(left).collect();
            Value::from(format!("{before}{text}{after}"))
        }
        "swapcase" => {
            from_args::<()>(args)?;
            let mut swapped = String::with_capacity(text.len());
            for c in text.chars() {
                match c.is_uppercase() {
                    true => swapped.extend(c.to_lowercase()),
                    false => swapped.extend(c.to_uppercase()),
                }
            }
            Value::from(swapped)
        }
        _ => return Ok(None),
    };
    Ok(Some(result))
}

/// Splits a text from its end, at most `limit` times; `None` or a negative number is no limit.
fn rsplit(text: &str, separator: Option<&str>, limit: Option<i64>) -> Result<Vec<String>, Error> {
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX - 1);
    let mut parts: Vec<String> = match separator {
        Some(separator) => {
            text.rsplitn(limit + 1, non_empty(separator)?).map(str::to_owned).collect()
        }
        None => {
            let mut parts = Vec::new();
            let mut rest = text.trim_end();
            while parts.len() < limit
                && let Some((before, after)) = rest.rsplit_once(char::is_whitespace)
            {
                parts.push(after.to_owned());
                rest = before.trim_end();
            }
            // What remains keeps its leading blanks only if the limit was reached.
            let last = if parts.len() < limit { rest.trim_start() } else { rest };
            if !last.is_empty() {
                parts.push(last.to_owned());
            }
            parts
        }
    };
    parts.reverse();
    Ok(parts)
}

fn parts(parts: [&str; 3]) -> Value {
    Value::from(Tuple::new(parts.map(Value::from).to_vec()))
}

/// Returns the characters that are missing to this width.
fn padding(text: &str, width: usize, fill: char) -> String {
    let missing = width.min(MAX_WIDTH).saturating_sub(text.chars().count());
    std::iter::repeat_n(fill, missing).collect()
}

fn non_empty(separator: &str) -> Result<&str, Error> {
    if separator.is_empty() {
        return Err(Error::new(ErrorKind::InvalidOperation, "the separator is empty"));
    }
    Ok(separator)
}

fn not_found(method: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("{method} finds nothing"))
}

//! Settings on which the `tokenizers` library panics, when it parses a file or encodes a text.
//! `tests/hostile.rs` finds them.

use regex_syntax::Parser;
use serde_json::Value;

/// Checks a component of a stage.
pub(crate) fn check(component: &Value) -> Result<(), String> {
    let is_empty = |key: &str| component.get(key).is_some_and(|value| value == "");
    if is_empty("prepend") {
        return Err("`prepend` is empty".to_owned());
    }
    if component.get("pattern").is_some() && component.get("content").is_some() {
        check_pattern(&component["pattern"])?;
    }
    if component["type"] == "Strip" && component["stop"].as_u64().is_some_and(|stop| stop > 0) {
        return Err("`stop` of a `Strip` is above 0, which fails on short tokens".to_owned());
    }
    if component["type"] == "FixedLength" && component["length"] == 0 {
        return Err("`length` is 0".to_owned());
    }
    Ok(())
}

/// Checks that a `Replace` does not replace the empty text.
fn check_pattern(pattern: &Value) -> Result<(), String> {
    let can_be_empty = match (&pattern["String"], &pattern["Regex"]) {
        (Value::String(text), _) => text.is_empty(),
        // An expression with look-around is not understood here, and may match nothing.
        (_, Value::String(expression)) => Parser::new()
            .parse(expression)
            .map_or(true, |parsed| parsed.properties().minimum_len() == Some(0)),
        _ => false,
    };
    if can_be_empty {
        return Err(format!("the pattern {pattern} of a `Replace` may match the empty text"));
    }
    Ok(())
}

/// Checks that the second part of every merge is longer than `continuing_subword_prefix`, which the
/// library removes from it.
pub(crate) fn check_merges(model: &Value) -> Result<(), String> {
    let prefix = model["continuing_subword_prefix"].as_str().unwrap_or_default();
    if prefix.is_empty() {
        return Ok(());
    }
    for merge in model["merges"].as_array().into_iter().flatten() {
        let second = match merge {
            Value::String(pair) => pair.split_once(' ').map(|(_, second)| second),
            pair => pair[1].as_str(),
        };
        if second.is_some_and(|second| second.get(prefix.len()..).is_none()) {
            return Err(format!(
                "the merge {merge} has no `continuing_subword_prefix`, which is {prefix:?}"
            ));
        }
    }
    Ok(())
}

//! The factor by which the components of a tokenizer can lengthen a text.
//!
//! A normaliser that doubles a text is harmless, and sixty of them exhaust any memory. Published
//! tokenizers lengthen a text up to 40 times, if it consists of ligatures alone.

use serde_json::Value;

use crate::{charsmap, faults};

/// Largest accepted factor of each stage.
const MAX_GROWTH: f64 = 256.0;
/// Most components of a stage. Published tokenizers have up to 10.
const MAX_COMPONENTS: usize = 64;

/// The stages of a tokenizer, with the key of the components of a sequence.
const STAGES: [(&str, &str); 4] = [
    ("normalizer", "normalizers"),
    ("pre_tokenizer", "pretokenizers"),
    ("post_processor", "processors"),
    ("decoder", "decoders"),
];

/// Checks every stage of a tokenizer.json.
pub(crate) fn check(json: &Value) -> Result<(), String> {
    for (stage, list) in STAGES {
        let mut components = Vec::new();
        collect(&json[stage], list, &mut components);
        if components.len() > MAX_COMPONENTS {
            return Err(format!(
                "`{stage}` has {} components; at most {MAX_COMPONENTS} are read",
                components.len()
            ));
        }
        let mut growth = 1.0;
        for component in components {
            growth *= faults::check(component)
                .and_then(|()| factor(component))
                .map_err(|reason| format!("`{stage}`: {reason}"))?;
        }
        if growth > MAX_GROWTH {
            return Err(format!(
                "`{stage}` can make a text {growth:.0} times as long; at most {MAX_GROWTH} times \
                 is accepted"
            ));
        }
    }
    Ok(())
}

/// Adds a component, or those of a sequence, to `components`.
fn collect<'j>(component: &'j Value, list: &str, components: &mut Vec<&'j Value>) {
    if component.is_null() {
        return;
    }
    // Old files have no type.
    let is_sequence = component["type"].is_null() || component["type"] == "Sequence";
    match component[list].as_array() {
        Some(parts) if is_sequence => {
            for part in parts {
                collect(part, list, components);
            }
        }
        _ => components.push(component),
    }
}

/// Returns the factor of one component.
fn factor(component: &Value) -> Result<f64, String> {
    let length = |key: &str| component[key].as_str().map_or(0, str::len) as f64;
    if component.get("precompiled_charsmap").is_some() || component["type"] == "Precompiled" {
        return charsmap::growth(&component["precompiled_charsmap"]);
    }
    // The library recognises old files, which have no `type`, by their fields.
    if component.get("content").is_some() && component.get("pattern").is_some() {
        let shortest = component["pattern"]["String"].as_str().map_or(1, str::len);
        return Ok((length("content") / shortest as f64).max(1.0));
    }
    if component.get("prepend").is_some() {
        return Ok((length("prepend") / 4.0).max(1.0));
    }
    if let Some(single) = component["single"].as_array() {
        let pair = component["pair"].as_array().map_or(0, Vec::len);
        let sequences = single.iter().filter(|piece| piece.get("Sequence").is_some()).count();
        // A pair has two texts, each of which is counted.
        return Ok((sequences as f64).max(pair as f64 / 4.0).max(1.0));
    }
    // Bytes that are not ASCII become characters of two bytes.
    Ok(if component["type"] == "ByteLevel" { 2.0 } else { 1.0 })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn replace(pattern: &str, content: &str) -> Value {
        json!({"type": "Replace", "pattern": {"String": pattern}, "content": content})
    }

    #[test]
    fn doubling_components_are_refused() {
        let doublings: Vec<Value> = (0..60).map(|_| replace("a", "aa")).collect();
        for (stage, list) in STAGES {
            let json = json!({stage: {"type": "Sequence", list: doublings}});
            let error = check(&json).unwrap_err();
            assert!(error.contains("1152921504606846976 times"), "{error}");
        }
        let nested = json!({"type": "Sequence", "normalizers": doublings});
        let json =
            json!({"normalizer": {"type": "Sequence", "normalizers": [nested, {"type": "NFC"}]}});
        assert!(check(&json).is_err());
        let long = replace("a", &"a".repeat(1000));
        assert!(check(&json!({"normalizer": long})).is_err());
        let empty =
            json!({"type": "Replace", "pattern": {"Regex": ""}, "content": "b".repeat(300)});
        assert!(check(&json!({"normalizer": empty})).is_err());
        let bytes: Vec<Value> = (0..20).map(|_| json!({"type": "ByteLevel"})).collect();
        let sequence = json!({"type": "Sequence", "pretokenizers": bytes});
        assert!(check(&json!({"pre_tokenizer": sequence})).is_err());
        let texts: Vec<Value> = (0..20)
            .map(|_| {
                let text = json!({"Sequence": {"id": "A", "type_id": 0}});
                json!({"type": "TemplateProcessing", "single": [text, text], "pair": [],
                       "special_tokens": {}})
            })
            .collect();
        let sequence = json!({"type": "Sequence", "processors": texts});
        assert!(check(&json!({"post_processor": sequence})).is_err());
    }

    #[test]
    fn published_forms_are_accepted() {
        let space = replace(" ", "▁");
        let prepend = json!({"type": "Prepend", "prepend": "▁"});
        let json = json!({
            "normalizer": {"type": "Sequence", "normalizers": [prepend, space, {"type": "NFKC"}]},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": "\\s+"}, "behavior": "Isolated"},
                {"type": "ByteLevel", "add_prefix_space": false}]},
            "post_processor": null,
            "decoder": {"type": "Sequence", "decoders": [replace("▁", " "), {"type": "Fuse"}]},
        });
        check(&json).unwrap();
    }
}

//! Damaged files: whatever is wrong in a tokenizer.json, it is an error, or a tokenizer that works.

use std::panic::catch_unwind;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Tokenizers of every kind, with most components of published ones.
fn tokenizers() -> Vec<Value> {
    let special = |id: u32, content: &str| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false,
               "rstrip": false, "normalized": false, "special": true})
    };
    let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    // A trie of 256 empty units.
    let charsmap = STANDARD.encode([&1024u32.to_le_bytes()[..], &[0; 1024]].concat());
    let template = json!({
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}
    });
    vec![
        json!({
            "version": "1.0", "truncation": null, "padding": null,
            "added_tokens": [special(0, "<s>"), special(1, "</s>")],
            "normalizer": {"type": "Sequence", "normalizers": [
                {"type": "Prepend", "prepend": "▁"}, replace, {"type": "NFKC"}, {"type": "Strip", "strip_left": true, "strip_right": false}]},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": "\\s+"}, "behavior": "Isolated", "invert": false},
                {"type": "Digits", "individual_digits": true},
                {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}]},
            "post_processor": {"type": "Sequence", "processors": [
                {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true}, template]},
            "decoder": {"type": "Sequence", "decoders": [
                replace, {"type": "ByteFallback"}, {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
            "model": {"type": "BPE", "dropout": 0.1, "unk_token": "a", "continuing_subword_prefix": "",
                      "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": true, "ignore_merges": true,
                      "vocab": {"<s>": 0, "</s>": 1, "a": 2, "b": 3, "ab": 4, "▁": 5, "<0x61>": 6, "Ġ": 7, "aab": 8},
                      "merges": [["a", "b"], ["a", "ab"]]}
        }),
        json!({
            "version": "1.0",
            "truncation": {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0},
            "padding": {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": null,
                        "pad_id": 0, "pad_type_id": 0, "pad_token": "<s>"},
            "added_tokens": [special(0, "<s>")],
            "normalizer": {"type": "Sequence", "normalizers": [
                {"type": "Precompiled", "precompiled_charsmap": charsmap}, {"type": "Nmt"}]},
            "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
            "post_processor": template,
            "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
            "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": false,
                      "vocab": [["<s>", 0.0], ["▁", -1.0], ["a", -2.0], ["ab", -3.0]]}
        }),
        json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [special(0, "[UNK]")],
            "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                           "strip_accents": null, "lowercase": true},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {"type": "BertProcessing", "sep": ["a", 2], "cls": ["b", 3]},
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                      "max_input_chars_per_word": 100,
                      "vocab": {"[UNK]": 0, "##b": 1, "a": 2, "b": 3}}
        }),
        json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "WhitespaceSplit"}, {"type": "Punctuation", "behavior": "Isolated"},
                {"type": "CharDelimiterSplit", "delimiter": "-"}, {"type": "FixedLength", "length": 5},
                {"type": "UnicodeScripts"}]},
            "post_processor": {"type": "RobertaProcessing", "sep": ["a", 0], "cls": ["b", 1],
                               "trim_offsets": true, "add_prefix_space": true},
            "decoder": {"type": "CTC", "pad_token": "a", "word_delimiter_token": "|", "cleanup": true},
            "model": {"type": "WordLevel", "unk_token": "a", "vocab": {"a": 0, "b": 1}}
        }),
    ]
}

/// Values that replace others.
fn replacements() -> Vec<Value> {
    vec![
        json!(null),
        json!(true),
        json!(0),
        json!(1),
        json!(-1),
        json!(7),
        json!(4_000_000_000_u64),
        json!(u64::MAX),
        json!(0.5),
        json!(2.5),
        json!(-1e300),
        json!(""),
        json!("a"),
        json!("é"),
        json!("(a"),
        json!("(?:)"),
        json!("ab▁"),
        json!("\0"),
        json!([]),
        json!({}),
        json!([[]]),
        json!(["a"]),
        json!([["a", "b"]]),
        json!({"type": "Sequence"}),
        json!({"type": "ByteLevel"}),
        json!("Precompiled"),
        json!("ByteLevel"),
        json!("AAAA"),
    ]
}

/// Returns the paths of all values.
fn pointers(value: &Value, path: &str, found: &mut Vec<String>) {
    found.push(path.to_owned());
    match value {
        Value::Object(map) => {
            for (key, item) in map {
                pointers(
                    item,
                    &format!("{path}/{}", key.replace('~', "~0").replace('/', "~1")),
                    found,
                );
            }
        }
        Value::Array(list) => {
            for (n, item) in list.iter().enumerate() {
                pointers(item, &format!("{path}/{n}"), found);
            }
        }
        _ => {}
    }
}

/// Parses a file, and encodes and decodes with it.
fn use_tokenizer(json: &str) {
    let Ok(file) = corver_tokenizer::parse(json.as_bytes()) else { return };
    for text in ["", " ", "ab <s>ab-ab", "é 1967\n日本", "a\u{301}\0x", &"ab ".repeat(50)] {
        let _ = file.tokenizer.encode((text, "b"), true);
        if let Ok(encoding) = file.tokenizer.encode_fast(text, false) {
            let _ = file.tokenizer.decode(encoding.get_ids(), true);
        }
    }
    let _ = file.tokenizer.decode(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 4_000_000_000], false);
}

#[test]
fn damaged_files_never_panic() {
    let mut panics = Vec::new();
    for json in tokenizers() {
        corver_tokenizer::parse(json.to_string().as_bytes()).unwrap();
        let mut found = Vec::new();
        pointers(&json, "", &mut found);
        for pointer in &found {
            for replacement in replacements() {
                let mut damaged = json.clone();
                *damaged.pointer_mut(pointer).unwrap() = replacement.clone();
                let text = damaged.to_string();
                if catch_unwind(|| use_tokenizer(&text)).is_err() {
                    panics.push(format!("{pointer} = {replacement}"));
                }
            }
            // Without the value.
            let (parent, key) = pointer.rsplit_once('/').unwrap_or_default();
            let mut damaged = json.clone();
            match damaged.pointer_mut(parent) {
                Some(Value::Object(map)) => drop(map.remove(key)),
                Some(Value::Array(list)) => drop(key.parse::<usize>().map(|n| list.remove(n))),
                _ => continue,
            }
            let text = damaged.to_string();
            if catch_unwind(|| use_tokenizer(&text)).is_err() {
                panics.push(format!("{pointer} removed"));
            }
        }
    }
    assert!(panics.is_empty(), "{} panics:\n{}", panics.len(), panics.join("\n"));
}

proptest! {
    #[test]
    fn bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = corver_tokenizer::parse(&bytes);
    }
}

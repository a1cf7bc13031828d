//! The reader of tokenizer.json for the workspace: models, extractors, NLI models and indexes.
//!
//! A file may come from anywhere. So its size of output, its ids and its tables are checked before
//! the `tokenizers` library, which trusts them, sees it.
//!
//! A tokenizer encodes a text in full, and always to the same ids. Three settings of the file would
//! change that, and are removed: `truncation` and `padding`, which a trainer has left there, and
//! `dropout`, which makes BPE random. `transformers` removes the first two as well.

mod charsmap;
mod faults;
mod growth;

use serde_json::Value;
use tokenizers::{ModelWrapper, Tokenizer};

/// Highest accepted token id. Tables of ids fit into memory.
const MAX_ID: u64 = (1 << 24) - 1;

/// A file that is not a usable tokenizer.json.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TokenizerError(String);

/// A parsed tokenizer.json.
#[derive(Debug)]
pub struct TokenizerFile {
    /// The tokenizer, without truncation, padding and dropout.
    pub tokenizer: Tokenizer,
    /// The content of the file.
    pub json: Value,
}

/// Parses the content of a tokenizer.json.
///
/// # Errors
/// Fails if the content is not JSON, the `tokenizers` library does not support it, or it could
/// exhaust memory.
pub fn parse(content: &[u8]) -> Result<TokenizerFile, TokenizerError> {
    let text = content.strip_prefix("\u{feff}".as_bytes()).unwrap_or(content);
    // The library panics on text that is not JSON.
    let json: Value =
        serde_json::from_slice(text).map_err(|error| TokenizerError(error.to_string()))?;
    growth::check(&json).map_err(TokenizerError)?;
    faults::check_merges(&json["model"]).map_err(TokenizerError)?;
    check_ids(&json).map_err(TokenizerError)?;
    let mut tokenizer =
        Tokenizer::from_bytes(text).map_err(|error| TokenizerError(error.to_string()))?;
    tokenizer
        .with_padding(None)
        .with_truncation(None)
        .map_err(|error| TokenizerError(error.to_string()))?;
    if let ModelWrapper::BPE(bpe) = tokenizer.get_model()
        && bpe.dropout.is_some()
    {
        let mut exact = bpe.clone();
        exact.dropout = None;
        tokenizer.with_model(exact);
    }
    Ok(TokenizerFile { tokenizer, json })
}

/// Checks that no id of the vocabulary is above [`MAX_ID`].
fn check_ids(json: &Value) -> Result<(), String> {
    let vocab = json["model"]["vocab"].as_object().into_iter().flatten();
    let added = json["added_tokens"].as_array().into_iter().flatten();
    let ids = vocab
        .map(|(token, id)| (token.as_str(), id))
        .chain(added.map(|token| (token["content"].as_str().unwrap_or_default(), &token["id"])));
    for (token, id) in ids {
        if id.as_u64().is_some_and(|id| id > MAX_ID) {
            return Err(format!("the token {token:?} has the id {id}; at most {MAX_ID} is read"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn words() -> Value {
        json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
            "normalizer": null, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null,
            "decoder": null,
            "model": {"type": "BPE", "dropout": null, "unk_token": null, "fuse_unk": false,
                      "continuing_subword_prefix": null, "end_of_word_suffix": null,
                      "byte_fallback": false,
                      "vocab": {"a": 0, "b": 1, "ab": 2, "abab": 3},
                      "merges": [["a", "b"], ["ab", "ab"]]}
        })
    }

    fn ids(json: &Value, text: &str) -> Vec<u32> {
        let file = parse(json.to_string().as_bytes()).unwrap();
        file.tokenizer.encode_fast(text, false).unwrap().get_ids().to_vec()
    }

    fn refusal(json: &Value) -> String {
        parse(json.to_string().as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn truncation_padding_and_dropout_are_removed() {
        let mut json = words();
        json["truncation"] = json!({"direction": "Right", "max_length": 2, "stride": 0,
                                    "strategy": "LongestFirst"});
        json["padding"] = json!({"strategy": {"Fixed": 9}, "direction": "Left", "pad_id": 1,
                                 "pad_to_multiple_of": null, "pad_type_id": 0, "pad_token": "b"});
        json["model"]["dropout"] = json!(0.9);
        for _ in 0..20 {
            assert_eq!(ids(&json, "ab abab b a"), [2, 3, 1, 0]);
        }
    }

    #[test]
    fn byte_order_mark_is_skipped() {
        let text = format!("\u{feff}{}", words());
        assert!(parse(text.as_bytes()).is_ok());
    }

    #[test]
    fn high_ids_are_refused_by_name() {
        let mut json = words();
        json["model"]["vocab"]["abab"] = json!(4_000_000_000_u64);
        assert!(refusal(&json).contains("\"abab\" has the id 4000000000"), "{}", refusal(&json));
        let mut json = words();
        json["added_tokens"] = json!([{"id": 4_000_000_000_u64, "content": "<x>",
            "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            "special": true}]);
        assert!(refusal(&json).contains("\"<x>\""), "{}", refusal(&json));
    }

    #[test]
    fn malformed_content_is_an_error() {
        for content in ["", "{", "[]", "{}", "null", "{\"model\":3}"] {
            assert!(parse(content.as_bytes()).is_err(), "{content:?}");
        }
    }
}

//! The special tokens of a folder by name, as `transformers` finds them.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value as Json;

use crate::error::{PretrainedError, Result};
use crate::json::read_json_if_exists;

/// The names that have a meaning for every model.
const NAMES: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// Returns the texts of a folder's special tokens by name, without those that it does not have.
///
/// `config` is the content of tokenizer_config.json. Older folders have some or all in
/// special_tokens_map.json, which is read unless `config` has an `added_tokens_decoder`, and then
/// takes precedence.
///
/// # Errors
/// Fails if special_tokens_map.json is not JSON, or a token is neither a text nor has one.
pub(crate) fn special_tokens(folder: &Path, config: &Json) -> Result<BTreeMap<String, String>> {
    let config_path = folder.join("tokenizer_config.json");
    let map_path = folder.join("special_tokens_map.json");
    let map = match config.get("added_tokens_decoder") {
        Some(_) => Json::Null,
        None => read_json_if_exists(&map_path)?,
    };
    let mut tokens = BTreeMap::new();
    for (path, content) in [(config_path, config), (map_path, &map)] {
        for name in NAMES {
            let text = match content.get(name) {
                None => continue,
                Some(Json::Null) => {
                    tokens.remove(name);
                    continue;
                }
                Some(Json::String(text)) => Some(text.as_str()),
                Some(token) => token.get("content").and_then(Json::as_str),
            };
            let expected = format!("a text as `{name}`, or an object with `content`");
            let text =
                text.ok_or_else(|| PretrainedError::malformed(&path, expected, &content[name]))?;
            tokens.insert(name.to_owned(), text.to_owned());
        }
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(config: &Json, map: &Json) -> BTreeMap<String, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("special_tokens_map.json"), map.to_string()).unwrap();
        special_tokens(folder.path(), config).unwrap()
    }

    /// The values are `AutoTokenizer.from_pretrained(…).special_tokens_map` of `transformers` 5.24.
    #[test]
    fn special_tokens_map_fills_and_overrides_older_folders() {
        let config =
            json!({"bos_token": "<a>", "eos_token": {"content": "<e>"}, "pad_token": null});
        let map = json!({"bos_token": "<b>", "pad_token": {"content": "<p>"}, "other": 3});
        let expected = [("bos_token", "<b>"), ("eos_token", "<e>"), ("pad_token", "<p>")];
        let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(read(&config, &map), BTreeMap::from(expected));
        let mut newer = config;
        newer["added_tokens_decoder"] = json!({});
        let expected = [("bos_token", "<a>"), ("eos_token", "<e>")];
        let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(read(&newer, &map), BTreeMap::from(expected));
    }

    #[test]
    fn token_without_text_is_an_error() {
        let error = special_tokens(Path::new("/nowhere"), &json!({"bos_token": 3})).unwrap_err();
        assert!(error.to_string().contains("expected a text as `bos_token`"), "{error}");
    }
}

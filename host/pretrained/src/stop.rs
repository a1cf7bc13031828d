//! The tokens that end a completion.

use std::path::Path;

use serde_json::Value as Json;
use tokenizers::Tokenizer;

use crate::error::{PretrainedError, Result};
use crate::json::read_json_if_exists;
use crate::special_tokens::special_tokens;

/// Stop tokens, as far as the vocabulary has them (the paper's evaluation).
const USUAL: [&str; 3] = ["<|im_end|>", "<|endoftext|>", "<|eot_id|>"];

/// The tokens that end a completion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopTokens {
    /// All of them, ascending.
    pub ids: Vec<u32>,
    /// The one that ends a demonstration.
    pub end: u32,
}

impl StopTokens {
    /// Reads the stop tokens of a model's folder: the usual ones of the vocabulary, and those that the
    /// folder declares.
    ///
    /// As in `transformers`, `eos_token_id` of generation_config.json takes precedence over that of
    /// config.json. `eos_token` of the tokenizer is used if neither declares any. A demonstration ends
    /// with `eos_token` if it is a stop token, else with the first declared one.
    ///
    /// # Errors
    /// Fails if a file is malformed, or the vocabulary has no such token.
    pub fn read(tokenizer: &Tokenizer, folder: &Path) -> Result<Self> {
        let tokenizer_config = read_json_if_exists(&folder.join("tokenizer_config.json"))?;
        let eos_text = special_tokens(folder, &tokenizer_config)?.remove("eos_token");
        let eos = eos_text.and_then(|text| tokenizer.token_to_id(&text));
        let mut declared = Vec::new();
        for name in ["generation_config.json", "config.json"] {
            let path = folder.join(name);
            if declared.is_empty() {
                declared = declared_ids(&path, &read_json_if_exists(&path)?)?;
            }
        }
        if declared.is_empty() {
            declared.extend(eos);
        }
        let usual: Vec<u32> =
            USUAL.iter().filter_map(|token| tokenizer.token_to_id(token)).collect();
        let mut ids = [declared.as_slice(), &usual].concat();
        ids.sort_unstable();
        ids.dedup();
        let end = eos.filter(|id| ids.contains(id)).or_else(|| {
            let known = |id: &&u32| tokenizer.id_to_token(**id).is_some();
            declared.iter().chain(&usual).find(known).copied()
        });
        match end {
            Some(end) => Ok(Self { ids, end }),
            None => Err(PretrainedError::InvalidModel(format!(
                "{}: no token ends an answer; set `eos_token_id` in generation_config.json to the \
                 id of a token of the vocabulary, or `eos_token` in tokenizer_config.json{}",
                folder.display(),
                if ids.is_empty() {
                    String::new()
                } else {
                    format!(" (the ids {ids:?} have none)")
                }
            ))),
        }
    }
}

/// Returns the ids of `eos_token_id`: one, a list, or none.
fn declared_ids(path: &Path, config: &Json) -> Result<Vec<u32>> {
    let values = match config.get("eos_token_id") {
        None | Some(Json::Null) => &[],
        Some(Json::Array(ids)) => ids.as_slice(),
        Some(id) => std::slice::from_ref(id),
    };
    let mut ids = Vec::with_capacity(values.len());
    for value in values {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        let expected = "a token id, or a list of them, as `eos_token_id`";
        ids.push(id.ok_or_else(|| PretrainedError::malformed(path, expected, value))?);
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{byte_level_json, byte_level_tokenizer};

    const IM_END: u32 = 257;

    fn read(files: &[(&str, Json)], is_chat: bool) -> Result<StopTokens> {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            std::fs::write(folder.path().join(name), content.to_string()).unwrap();
        }
        let mut json = byte_level_json();
        if !is_chat {
            json["added_tokens"] = json!([]);
            json["model"]["vocab"].as_object_mut().unwrap().remove("<|im_end|>");
        }
        StopTokens::read(&json.to_string().parse().unwrap(), folder.path())
    }

    /// The ids are `model.generation_config.eos_token_id` of `transformers` 5.24 for these files, and
    /// the usual one.
    #[test]
    fn generation_config_takes_precedence_over_config() {
        let generation = || ("generation_config.json", json!({"eos_token_id": [9, 5]}));
        let config = || ("config.json", json!({"eos_token_id": 7}));
        let tokenizer = || ("tokenizer_config.json", json!({"eos_token": "!"})); // id 0
        let ids = |files: &[(&str, Json)]| read(files, true).unwrap().ids;
        assert_eq!(ids(&[]), [IM_END]);
        assert_eq!(ids(&[generation(), config(), tokenizer()]), [5, 9, IM_END]);
        assert_eq!(ids(&[config(), tokenizer()]), [7, IM_END]);
        let null = ("generation_config.json", json!({"eos_token_id": null}));
        assert_eq!(ids(&[null, config()]), [7, IM_END]);
        assert_eq!(ids(&[tokenizer()]), [0, IM_END]);
        let end = |files: &[(&str, Json)]| read(files, true).unwrap().end;
        assert_eq!(end(&[generation(), config(), tokenizer()]), 9, "`!` is no stop token");
        let both = ("generation_config.json", json!({"eos_token_id": [9, 0]}));
        assert_eq!(end(&[both, tokenizer()]), 0, "`!` is one");
        assert_eq!(byte_level_tokenizer().stop_tokens(), [IM_END]);
    }

    #[test]
    fn folder_without_stop_token_is_refused() {
        let error = read(&[], false).unwrap_err().to_string();
        assert!(error.contains("no token ends an answer"), "{error}");
        let far = ("config.json", json!({"eos_token_id": 50_279}));
        let error = read(&[far], false).unwrap_err().to_string();
        assert!(error.contains("[50279]"), "{error}");
        for wrong in [json!(-1), json!("</s>"), json!([1, true]), json!(1.5)] {
            let error = read(&[("config.json", json!({"eos_token_id": wrong}))], true);
            let error = error.unwrap_err().to_string();
            assert!(error.contains("`eos_token_id`"), "{error}");
        }
    }
}

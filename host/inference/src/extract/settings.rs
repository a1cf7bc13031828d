//! The settings of an extractor: extractor.toml in its folder, which a run may override.

use std::path::Path;

use corver_pretrained::PretrainedError;
use serde::{Deserialize, Serialize};

use crate::extract::Result;

/// Settings of an extractor that its model's files do not have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExtractorSettings {
    /// Text before every sentence: instructions and examples. `None`: the run must set a prompt.
    pub prompt_prefix: Option<String>,
    /// Text after every sentence. `None`: empty.
    pub prompt_suffix: Option<String>,
    /// Tokens that end a reply, as the tokenizer spells them. `None`: those of the model's folder.
    pub stop: Option<Vec<String>>,
    /// Longest reply, tokens; a longer one is truncated. `None`: 256.
    pub max_new_tokens: Option<usize>,
    /// Most sentences decoded together. `None`: 256 for a Hugging Face folder on a GPU, else 32.
    pub batch_size: Option<usize>,
    /// Longest sentence, tokens. A longer one is not decoded and has no triplets. `None`: 512.
    pub max_sentence_tokens: Option<usize>,
    /// Number of key/value heads. `None`: the exported graph fixes it.
    pub num_kv_heads: Option<usize>,
    /// Width of a head. `None`: the exported graph fixes it.
    pub head_dim: Option<usize>,
}

/// Bounds of decoding, all above 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DecodeLimits {
    pub(crate) max_new_tokens: usize,
    pub(crate) batch_size: usize,
    pub(crate) max_sentence_tokens: usize,
    /// Most tokens of a sentence and its reply, without the prompt.
    pub(crate) max_own_tokens: usize,
}

/// Largest accepted setting. A model has a table with this number of positions.
const MAX_SIZE: usize = 1 << 16;

impl ExtractorSettings {
    /// Reads an extractor.toml.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or a setting is unknown or invalid.
    pub fn read(path: &Path) -> Result<Self> {
        let text =
            corver_files::read_settings_text(path).map_err(PretrainedError::io("read", path))?;
        let settings: Self = toml::from_str(&text)
            .map_err(|error| PretrainedError::malformed(path, "an extractor's settings", error))?;
        settings
            .check()
            .map_err(|(expected, got)| PretrainedError::malformed(path, expected, got))?;
        Ok(settings)
    }

    /// Returns these settings, with those of `others` for the ones that are not set.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self {
            prompt_prefix: self.prompt_prefix.or(others.prompt_prefix),
            prompt_suffix: self.prompt_suffix.or(others.prompt_suffix),
            stop: self.stop.or(others.stop),
            max_new_tokens: self.max_new_tokens.or(others.max_new_tokens),
            batch_size: self.batch_size.or(others.batch_size),
            max_sentence_tokens: self.max_sentence_tokens.or(others.max_sentence_tokens),
            num_kv_heads: self.num_kv_heads.or(others.num_kv_heads),
            head_dim: self.head_dim.or(others.head_dim),
        }
    }

    /// Returns what was expected and what was found if a setting is invalid.
    fn check(&self) -> std::result::Result<(), (String, String)> {
        if self.stop.as_ref().is_some_and(Vec::is_empty) {
            return Err(("at least one stop token".to_owned(), "stop = []".to_owned()));
        }
        let sizes = [
            ("max_new_tokens", self.max_new_tokens),
            ("batch_size", self.batch_size),
            ("max_sentence_tokens", self.max_sentence_tokens),
        ];
        for (key, size) in sizes {
            if let Some(size) = size.filter(|size| !(1..=MAX_SIZE).contains(size)) {
                return Err((format!("{key} from 1 to {MAX_SIZE}"), size.to_string()));
            }
        }
        Ok(())
    }

    /// Returns the bounds, given the number `room` of positions after the prompt and the default
    /// batch size.
    pub(crate) fn limits(&self, room: usize, default_batch_size: usize) -> DecodeLimits {
        let max_new_tokens = self.max_new_tokens.unwrap_or(256);
        let max_sentence_tokens = self.max_sentence_tokens.unwrap_or(512).min(room - 1);
        let max_own_tokens = room.min(max_sentence_tokens.saturating_add(max_new_tokens));
        DecodeLimits {
            max_new_tokens,
            batch_size: self.batch_size.unwrap_or(default_batch_size),
            max_sentence_tokens,
            max_own_tokens,
        }
    }
}

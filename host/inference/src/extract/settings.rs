//! How an extractor is asked: extractor.toml in its folder, and what a run says instead.

use std::path::Path;

use corver_pretrained::PretrainedError;
use serde::{Deserialize, Serialize};

use crate::extract::Result;

/// Everything about an extractor that is not in its model's files. What is not set has a default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// What the model reads before every sentence: instructions and examples.
    pub prompt_prefix: Option<String>,
    /// What it reads after the sentence.
    pub prompt_suffix: Option<String>,
    /// The tokens that end a reply, as the tokenizer spells them. Default: those of the model's
    /// folder.
    pub stop: Option<Vec<String>>,
    /// Longest reply, 256; a longer one is read as far as it goes.
    pub max_new_tokens: Option<usize>,
    /// Sentences decoded together, at most: 32.
    pub batch_size: Option<usize>,
    /// Longest sentence, 512. A longer one is no sentence: it is not shown to the model and has no
    /// triplets.
    pub max_sentence_tokens: Option<usize>,
    /// Key/value heads, where an exported graph leaves that dimension open.
    pub num_kv_heads: Option<usize>,
    /// Width of a head, where an exported graph leaves that dimension open.
    pub head_dim: Option<usize>,
}

/// Bounds of what is decoded, all above 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) max_new_tokens: usize,
    pub(crate) batch_size: usize,
    pub(crate) max_sentence_tokens: usize,
    /// A sentence and its reply, behind the prompt.
    pub(crate) max_own_tokens: usize,
}

impl Settings {
    /// Reads an extractor.toml.
    ///
    /// # Errors
    /// A file that cannot be read, or settings that are unknown or make no sense.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(PretrainedError::io("read", path))?;
        let settings: Self = toml::from_str(&text)
            .map_err(|error| PretrainedError::malformed(path, "an extractor's settings", error))?;
        settings
            .check()
            .map_err(|(expected, got)| PretrainedError::malformed(path, expected, got))?;
        Ok(settings)
    }

    /// These settings, and where they are not set, `others`.
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

    /// Otherwise (expected, got).
    fn check(&self) -> std::result::Result<(), (String, String)> {
        if self.stop.as_ref().is_some_and(Vec::is_empty) {
            return Err(("at least one stop token".to_owned(), "stop = []".to_owned()));
        }
        let sizes = [
            ("max_new_tokens", self.max_new_tokens),
            ("batch_size", self.batch_size),
            ("max_sentence_tokens", self.max_sentence_tokens),
        ];
        match sizes.into_iter().find(|(_, size)| *size == Some(0)) {
            Some((key, _)) => Err((format!("{key} above 0"), "0".to_owned())),
            None => Ok(()),
        }
    }

    /// `room`: positions that the prompt leaves.
    pub(crate) fn limits(&self, room: usize) -> Limits {
        let max_new_tokens = self.max_new_tokens.unwrap_or(256);
        let max_sentence_tokens = self.max_sentence_tokens.unwrap_or(512).min(room - 1);
        let max_own_tokens = room.min(max_sentence_tokens.saturating_add(max_new_tokens));
        Limits {
            max_new_tokens,
            batch_size: self.batch_size.unwrap_or(32),
            max_sentence_tokens,
            max_own_tokens,
        }
    }
}

//! The section `[verify.nli]`.

use std::path::PathBuf;

use corver_core::InvalidSetting;
use corver_onnx::Device;
use serde::{Deserialize, Serialize};

/// Which model answers, and how. What is not set has a default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The model's folder. Rules may ask where there is one.
    pub model: Option<PathBuf>,
    /// auto, cpu, cuda or cuda:N.
    pub device: Device,
    /// Pairs that are run together, at most.
    pub batch_size: usize,
    /// Tokens that are run together at most, padding included; a longer pair is run alone. Default: 1,024 on a processor, where a
    /// larger batch leaves the caches and is slower, and 16,384 on a GPU.
    pub max_batch_tokens: Option<usize>,
    /// Longest pair in tokens; of a longer one, the end of the longer text is left out. Default: 512 for DeBERTa, as its tokenizer
    /// has it, and 4,096 for HHEM, whose published code has no bound.
    pub max_tokens: Option<usize>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { model: None, device: Device::Auto, batch_size: 32, max_batch_tokens: None, max_tokens: None }
    }
}

impl Settings {
    /// # Errors
    /// A size that makes no sense.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        let sizes = [
            ("verify.nli.batch_size", Some(self.batch_size)),
            ("verify.nli.max_batch_tokens", self.max_batch_tokens),
            ("verify.nli.max_tokens", self.max_tokens),
        ];
        match sizes.into_iter().find(|(_, size)| *size == Some(0)) {
            Some((key, _)) => Err(InvalidSetting { key, got: "0".to_owned(), expected: "a number above 0" }),
            None => Ok(()),
        }
    }
}

//! An extractor as a folder: model.onnx, tokenizer.json, extractor.toml.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tokenizers::Tokenizer;

use crate::{ExtractError, Result};

/// extractor.toml: everything about an extractor that is not in its weights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// What stands before every sentence: instructions and examples. Must end where a token ends; a line break will do.
    pub prompt_prefix: String,
    /// What stands after the sentence.
    pub prompt_suffix: String,
    /// The tokens that end a reply, as the tokenizer spells them.
    pub stop: Vec<String>,
    /// Longest reply; a longer one is read as far as it goes.
    #[serde(default = "default_max_new_tokens")]
    pub max_new_tokens: usize,
    /// Sentences decoded together.
    #[serde(default = "default_batch_size")]
    pub batch_size: usize,
    /// Longest sentence, the suffix included. A longer one is no sentence: it is not shown to the model and has no
    /// triplets.
    #[serde(default = "default_max_sentence_tokens")]
    pub max_sentence_tokens: usize,
    /// Key/value heads, where the graph leaves that dimension open.
    pub num_kv_heads: Option<usize>,
    /// Width of a head, where the graph leaves that dimension open.
    pub head_dim: Option<usize>,
}

fn default_max_new_tokens() -> usize {
    256
}

fn default_batch_size() -> usize {
    32
}

fn default_max_sentence_tokens() -> usize {
    512
}

/// A bundle that has been read and checked, all but the graph.
pub struct Bundle {
    /// extractor.toml.
    pub settings: Settings,
    /// model.onnx.
    pub(crate) graph: PathBuf,
    pub(crate) tokenizer: Tokenizer,
    /// Ids of the prompt before the sentence.
    pub(crate) prefix: Vec<u32>,
    /// Ids that end a reply.
    pub(crate) stop: Vec<u32>,
    fingerprint: String,
}

/// Beginnings of a sentence that a tokenizer may want to join to what stands before them.
const PROBES: [&str; 6] = ["Paris", "a", "1967", "\"So", "(", "é"];

impl Bundle {
    /// Reads a bundle folder.
    ///
    /// # Errors
    /// A file that is missing or malformed, a setting that makes no sense, a stop token that the tokenizer does not
    /// have, or a prompt that does not end where a token ends.
    pub fn read(folder: &Path) -> Result<Self> {
        let (graph, settings_path) = (folder.join("model.onnx"), folder.join("extractor.toml"));
        let tokenizer_path = folder.join("tokenizer.json");
        let settings_bytes = read(&settings_path)?;
        let tokenizer_bytes = read(&tokenizer_path)?;
        let mut hasher = blake3::Hasher::new();
        for bytes in [&settings_bytes, &tokenizer_bytes, &read(&graph)?] {
            hasher.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
        }

        let settings = parse_settings(&settings_path, &settings_bytes)?;
        let tokenizer = Tokenizer::from_bytes(&tokenizer_bytes).map_err(|error| ExtractError::Malformed {
            path: tokenizer_path.clone(),
            expected: "a tokenizer".to_owned(),
            got: error.to_string(),
        })?;
        let stop = settings.stop.iter().map(|token| match tokenizer.token_to_id(token) {
            Some(id) => Ok(id),
            None => Err(ExtractError::Malformed {
                path: settings_path.clone(),
                expected: "stop tokens that the tokenizer has".to_owned(),
                got: format!("`{token}`"),
            }),
        });
        let stop = stop.collect::<Result<_>>()?;
        let prefix = encode(&tokenizer, &settings.prompt_prefix)?;
        let bundle = Self {
            prefix,
            stop,
            graph,
            tokenizer,
            settings,
            fingerprint: format!("blake3:{}", hasher.finalize().to_hex()),
        };
        bundle.check_prefix(&settings_path)?;
        Ok(bundle)
    }

    /// Sharing the prefix's keys and values is exact only if the prefix is tokenised alike before every sentence.
    fn check_prefix(&self, path: &Path) -> Result<()> {
        for probe in PROBES {
            let rest = format!("{probe}{}", self.settings.prompt_suffix);
            let whole = encode(&self.tokenizer, &format!("{}{rest}", self.settings.prompt_prefix))?;
            if whole != [&self.prefix[..], &encode(&self.tokenizer, &rest)?].concat() {
                return Err(ExtractError::Malformed {
                    path: path.to_owned(),
                    expected: "a prompt_prefix that ends where a token ends, such as after a line break".to_owned(),
                    got: format!("one whose last token changes before the sentence {probe:?}"),
                });
            }
        }
        Ok(())
    }

    /// `blake3:` and the hash of the three files, for a run's manifest.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Ids of a sentence with the suffix behind it; `None` where that is too long.
    pub(crate) fn encode_sentence(&self, sentence: &str) -> Result<Option<Vec<u32>>> {
        let ids = encode(&self.tokenizer, &format!("{sentence}{}", self.settings.prompt_suffix))?;
        Ok((ids.len() <= self.settings.max_sentence_tokens).then_some(ids))
    }

    pub(crate) fn decode(&self, ids: &[u32]) -> Result<String> {
        self.tokenizer
            .decode(ids, true)
            .map_err(|error| ExtractError::Tokenize { sentence: format!("{ids:?}"), reason: error.to_string() })
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|source| ExtractError::Io { path: path.to_owned(), source })
}

fn parse_settings(path: &Path, bytes: &[u8]) -> Result<Settings> {
    let malformed = |expected: &str, got: String| ExtractError::Malformed {
        path: path.to_owned(),
        expected: expected.to_owned(),
        got,
    };
    let text = std::str::from_utf8(bytes).map_err(|error| malformed("UTF-8", error.to_string()))?;
    let settings: Settings =
        toml::from_str(text).map_err(|error| malformed("an extractor's settings", error.to_string()))?;
    if settings.stop.is_empty() {
        return Err(malformed("at least one stop token", "stop = []".to_owned()));
    }
    let sizes = [
        ("max_new_tokens", settings.max_new_tokens),
        ("batch_size", settings.batch_size),
        ("max_sentence_tokens", settings.max_sentence_tokens),
    ];
    if let Some((key, _)) = sizes.into_iter().find(|(_, size)| *size == 0) {
        return Err(malformed(&format!("{key} above 0"), "0".to_owned()));
    }
    Ok(settings)
}

/// The prompt spells out every special token that it wants, so none is added.
fn encode(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>> {
    match tokenizer.encode_fast(text, false) {
        Ok(encoding) => Ok(encoding.get_ids().to_vec()),
        Err(error) => Err(ExtractError::Tokenize { sentence: text.to_owned(), reason: error.to_string() }),
    }
}

//! Text to token ids, as the index and its clients do it.
//!
//! *Documents* are encoded without special tokens. *Query words* must get the ids that the word has
//! in running text, after a space; how that is done depends on how the tokenizer marks a word's
//! start:
//!
//! * Metaspace (Llama 2 and its kin: `▁Paris`). The tokenizer puts the mark in front by itself, so
//!   a word at a document's start and one after a space are the same. Where the mark stands alone
//!   (`▁`, `巴`), clients of the official engine drop it, and so does this.
//! * Byte-level (GPT-2, Llama 3, Qwen: `ĠParis`). The space belongs to the word, so one is put in
//!   front. A word at the very start of a document, after a line break, a quote or a bracket has
//!   other ids (`Paris`) and is not found, as is `(Paris` in the first family. Taking `Paris` as an
//!   alternative would also count it inside other words (`McDonald` is `Mc`, `Donald`), which
//!   inflates counts without a bound; a missed first word deflates them a little. A tokenizer with
//!   `add_prefix_space` treats a document's first word like any other.
//! * Anything else is encoded as it is.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::text::bpe_cache::{BpeCache, MARK};
use crate::token_width::TokenWidth;

/// A Hugging Face `tokenizer.json`.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    marking: WordStart,
    bpe_cache: Option<Arc<BpeCache>>,
    json: Vec<u8>,
    fingerprint: String,
    num_ids: u32,
}

/// How a tokenizer marks the start of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WordStart {
    /// `▁`, put in front of a text that does not begin with one.
    Metaspace { lone_mark: Option<u32> },
    /// `▁`, put in front of every text by a normalizer.
    Prepended { lone_mark: Option<u32> },
    /// The space's own byte.
    ByteLevel,
    /// No known mark.
    Plain,
}

impl Tokenizer {
    /// Loads a `tokenizer.json`.
    ///
    /// # Errors
    /// Where the file cannot be read, or is no tokenizer that the `tokenizers` library knows.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let json = std::fs::read(path).map_err(Error::io("read", path))?;
        Self::parse(json, path)
    }

    /// Takes the content of a `tokenizer.json`.
    ///
    /// # Errors
    /// Where it is no tokenizer that the `tokenizers` library knows.
    pub fn from_bytes(json: impl Into<Vec<u8>>) -> Result<Self> {
        Self::parse(json.into(), &PathBuf::from("(tokenizer in memory)"))
    }

    fn parse(json: Vec<u8>, path: &Path) -> Result<Self> {
        let wrong = |error: tokenizers::Error| {
            let path = path.display();
            Error::InvalidInput(format!("{path}: not a usable tokenizer.json: {error}"))
        };
        // First: the library panics on text that is no JSON.
        let config: serde_json::Value = serde_json::from_slice(&json)
            .map_err(|error| Error::InvalidInput(format!("{}: {error}", path.display())))?;
        let mut inner = tokenizers::Tokenizer::from_bytes(&json).map_err(wrong)?;
        // Some files hold the truncation and padding of the model they were made for; an index
        // needs exactly the whole text.
        inner.with_truncation(None).map_err(wrong)?.with_padding(None);
        let marking = WordStart::of(&config, inner.token_to_id(MARK));
        let bpe_cache = BpeCache::new(&config, &inner).map(Arc::new);
        let num_ids = inner.get_vocab(true).values().max().map_or(0, |&id| id.saturating_add(1));
        let fingerprint = blake3::hash(&json).to_hex().to_string();
        Ok(Self { inner, marking, bpe_cache, json, fingerprint, num_ids })
    }

    /// The ids of a document: no special tokens, and what the slow tokenizer of the Llama 2 family
    /// would give, which marks a text's first word even where the text begins with a space.
    ///
    /// # Errors
    /// Where the tokenizer fails (a vocabulary without an unknown token, for instance).
    pub fn encode_document(&self, text: &str) -> Result<Vec<u32>> {
        if let Some(cache) = &self.bpe_cache
            && let Some(ids) = cache.encode(&self.inner, text)?
        {
            return Ok(ids);
        }
        let begins_with_space = text.starts_with(' ') || text.starts_with(MARK);
        match self.marking {
            WordStart::Metaspace { .. } if begins_with_space => self.encode(&format!(" {text}")),
            _ => self.encode(text),
        }
    }

    /// The ids that a word, or several, has in running text. Empty where the word has none.
    ///
    /// # Errors
    /// As [`Tokenizer::encode_document`].
    pub fn encode_word(&self, word: &str) -> Result<Vec<u32>> {
        match self.marking {
            WordStart::Metaspace { lone_mark } | WordStart::Prepended { lone_mark } => {
                let mut ids = self.encode_document(word)?;
                if lone_mark.is_some() && ids.first().copied() == lone_mark {
                    ids.remove(0);
                }
                Ok(ids)
            }
            WordStart::ByteLevel if !word.is_empty() && !word.starts_with(' ') => {
                self.encode(&format!(" {word}"))
            }
            WordStart::ByteLevel | WordStart::Plain => self.encode(word),
        }
    }

    /// The text of some ids, for showing a passage; special tokens and ids that the vocabulary
    /// lacks are left out.
    ///
    /// # Errors
    /// Where the tokenizer's decoder fails.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        self.inner.decode(ids, true).map_err(Error::not_tokenised)
    }

    /// The vocabulary's own spelling of an id (`▁Paris`, `ĠParis`); `None` where it has no such id.
    pub fn piece(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// blake3 of the `tokenizer.json`.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The content of the `tokenizer.json`.
    pub fn json(&self) -> &[u8] {
        &self.json
    }

    /// The largest id, plus one.
    pub fn num_ids(&self) -> u32 {
        self.num_ids
    }

    /// The narrowest width that its ids fit.
    pub fn token_width(&self) -> TokenWidth {
        TokenWidth::for_vocabulary(self.num_ids)
    }

    /// About how many bytes a thread needs to tokenise document after document.
    pub(crate) fn bytes_per_thread(&self) -> u64 {
        if self.bpe_cache.is_some() { BpeCache::BYTES_PER_THREAD } else { 1 << 20 }
    }

    /// Frees the memory of the cache.
    pub(crate) fn clear_cache(&self) {
        if let Some(cache) = &self.bpe_cache {
            cache.clear();
        }
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>> {
        match self.inner.encode_fast(text, false) {
            Ok(encoding) => Ok(encoding.get_ids().to_vec()),
            Err(error) => Err(Error::not_tokenised(error)),
        }
    }
}

impl WordStart {
    /// Takes it from the file; the library's own types do not tell.
    fn of(config: &serde_json::Value, lone_mark: Option<u32>) -> Self {
        let parts = |name: &str, list: &str| -> Vec<serde_json::Value> {
            match &config[name] {
                serde_json::Value::Null => Vec::new(),
                part if part["type"] == "Sequence" => {
                    part[list].as_array().cloned().unwrap_or_default()
                }
                part => vec![part.clone()],
            }
        };
        let pre_tokenizers = parts("pre_tokenizer", "pretokenizers");
        let is_metaspace = |part: &serde_json::Value| {
            let adds = part["prepend_scheme"].as_str().map(|scheme| scheme != "never");
            part["type"] == "Metaspace"
                && adds.or(part["add_prefix_space"].as_bool()).unwrap_or(true)
        };
        if pre_tokenizers.iter().any(is_metaspace) {
            return Self::Metaspace { lone_mark };
        }
        let prepends =
            |part: &serde_json::Value| part["type"] == "Prepend" && part["prepend"] == MARK;
        if parts("normalizer", "normalizers").iter().any(prepends) {
            return Self::Prepended { lone_mark };
        }
        if pre_tokenizers.iter().any(|part| part["type"] == "ByteLevel") {
            return Self::ByteLevel;
        }
        Self::Plain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A word-level vocabulary, or a BPE one of single characters, behind a pre-tokenizer.
    fn tokenizer(model: &str, pre_tokenizer: &str) -> Tokenizer {
        let json = format!(
            r#"{{"version":"1.0","truncation":{{"max_length":2,"stride":0,"strategy":"LongestFirst","direction":"Right"}},
            "padding":null,"added_tokens":[],"normalizer":null,"pre_tokenizer":{pre_tokenizer},"post_processor":null,
            "decoder":null,"model":{model}}}"#
        );
        Tokenizer::from_bytes(json).unwrap()
    }

    const BPE: &str =
        r#"{"type":"BPE","vocab":{"▁":0,"a":1,"b":2,"▁a":3,"Ġ":4,"Ġa":5},"merges":["▁ a","Ġ a"]}"#;

    #[test]
    fn metaspace_tokenizer_marks_first_word() {
        let llama = tokenizer(
            BPE,
            r#"{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":false}"#,
        );
        assert_eq!(llama.encode_document("a a").unwrap(), [3, 3]);
        assert_eq!(llama.encode_document(" a").unwrap(), [0, 3]); // the slow tokenizer's mark, then the space's
        assert_eq!(llama.encode_document("\u{2581}a").unwrap(), [0, 3]);
        assert_eq!(llama.encode_document("b").unwrap(), [0, 2]);
        assert_eq!(llama.encode_word("b").unwrap(), [2]); // the lone mark is dropped from a query, and only there
        assert_eq!(llama.encode_word("").unwrap(), [] as [u32; 0]);
    }

    #[test]
    fn byte_level_word_is_encoded_after_space() {
        let gpt = tokenizer(
            BPE,
            r#"{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}"#,
        );
        assert_eq!(gpt.encode_document("a a").unwrap(), [1, 5]);
        assert_eq!(gpt.encode_word("a").unwrap(), [5]);
        assert_eq!(gpt.encode_word(" a").unwrap(), [5]);
        assert_eq!(gpt.encode_word("").unwrap(), [] as [u32; 0]);
    }

    #[test]
    fn plain_tokenizer_encodes_without_truncation() {
        let words = tokenizer(
            r#"{"type":"WordLevel","vocab":{"[UNK]":0,"red":1,"fox":2},"unk_token":"[UNK]"}"#,
            r#"{"type":"Whitespace"}"#,
        );
        assert_eq!(words.encode_document("red fox red fox").unwrap(), [1, 2, 1, 2]);
        assert_eq!(words.encode_word("fox").unwrap(), [2]);
        assert_eq!((words.num_ids(), words.token_width()), (3, TokenWidth::U8));
    }

    #[test]
    fn invalid_tokenizer_json_is_rejected() {
        let error = Tokenizer::from_bytes("{}").unwrap_err().to_string();
        assert!(error.contains(": not a usable tokenizer.json: "), "{error}");
    }
}

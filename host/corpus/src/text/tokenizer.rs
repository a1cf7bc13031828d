//! Conversion of text to the token ids of an index.
//!
//! *Documents* are encoded without special tokens. *Query words* must get the ids that the word has
//! in running text, after a space. That depends on the tokenizer's mark of a word's start:
//!
//! * Metaspace (Llama 2 and its family: `▁Paris`). The tokenizer adds the mark itself, so a word at
//!   a document's start has the same ids as one after a space. If the mark is a token of its own
//!   (`▁`, `巴`), clients of the official engine drop it, and so does this module.
//! * Byte-level (GPT-2, Llama 3, Qwen: `ĠParis`). The space belongs to the word, so a space is
//!   prepended. A word at the start of a document, or after a line break, quote or bracket, has
//!   other ids (`Paris`) and is not found. The same is true of `(Paris` in the first family. Taking
//!   `Paris` as an alternative would also count it inside other words (`McDonald` is `Mc`,
//!   `Donald`), which inflates counts without a bound; a missed first word deflates them slightly.
//!   A tokenizer with `add_prefix_space` treats a document's first word like any other.
//! * Other tokenizers encode the word unchanged.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::text::bpe_cache::{BpeCache, MARK};
use crate::token_width::TokenWidth;

/// A Hugging Face `tokenizer.json`.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    word_start: WordStart,
    bpe_cache: Option<Arc<BpeCache>>,
    json: Vec<u8>,
    fingerprint: String,
    num_ids: u32,
}

/// A tokenizer's mark of the start of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WordStart {
    /// `▁`, prepended to a text that does not begin with one.
    Metaspace { lone_mark: Option<u32> },
    /// `▁`, prepended to every text by a normalizer.
    Prepended { lone_mark: Option<u32> },
    /// The byte of the space.
    ByteLevel,
    /// No mark that this module supports.
    Plain,
}

impl Tokenizer {
    /// Loads a `tokenizer.json`.
    ///
    /// # Errors
    /// Fails if the file cannot be read or the `tokenizers` library does not support it.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let file = path.as_ref();
        let json = std::fs::read(file).map_err(Error::io("read", file))?;
        Self::parse(json, file)
    }

    /// Parses the content of a `tokenizer.json`.
    ///
    /// # Errors
    /// Fails if the `tokenizers` library does not support it.
    pub fn from_bytes(json: impl Into<Vec<u8>>) -> Result<Self> {
        Self::parse(json.into(), &PathBuf::from("(tokenizer in memory)"))
    }

    fn parse(json: Vec<u8>, path: &Path) -> Result<Self> {
        let corver_tokenizer::TokenizerFile { tokenizer: inner, json: config } =
            corver_tokenizer::parse(&json).map_err(|error| {
                let message = format!("{}: not a usable tokenizer.json: {error}", path.display());
                Error::InvalidInput(message)
            })?;
        let word_start = WordStart::from_config(&config, inner.token_to_id(MARK));
        let bpe_cache = BpeCache::new(&config, &inner).map(Arc::new);
        let num_ids = inner.get_vocab(true).values().max().map_or(0, |&id| id.saturating_add(1));
        let fingerprint = blake3::hash(&json).to_hex().to_string();
        Ok(Self { inner, word_start, bpe_cache, json, fingerprint, num_ids })
    }

    /// Encodes a document, without special tokens. The ids are those of the slow tokenizer of the
    /// Llama 2 family, which marks a text's first word also if the text begins with a space.
    ///
    /// # Errors
    /// Fails if the tokenizer fails, for example because its vocabulary has no unknown token.
    pub fn encode_document(&self, text: &str) -> Result<Vec<u32>> {
        if let Some(cache) = &self.bpe_cache
            && let Some(ids) = cache.encode(&self.inner, text)?
        {
            return Ok(ids);
        }
        let begins_with_space = text.starts_with(' ') || text.starts_with(MARK);
        match self.word_start {
            WordStart::Metaspace { .. } if begins_with_space => self.encode(&format!(" {text}")),
            _ => self.encode(text),
        }
    }

    /// Encodes a word, or a phrase, as in running text. The result is empty if the word has no ids.
    ///
    /// # Errors
    /// Fails as [`Tokenizer::encode_document`] does.
    pub fn encode_word(&self, word: &str) -> Result<Vec<u32>> {
        match self.word_start {
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

    /// Decodes ids. Special tokens and unknown ids are omitted.
    ///
    /// # Errors
    /// Fails if the tokenizer's decoder fails.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        self.inner.decode(ids, true).map_err(Error::not_tokenised)
    }

    /// Returns the vocabulary's spelling of an id (`▁Paris`, `ĠParis`); `None` if the id is unknown.
    pub fn piece(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// Returns the blake3 hash of the `tokenizer.json`, in hexadecimal.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Returns the content of the `tokenizer.json`.
    pub fn json(&self) -> &[u8] {
        &self.json
    }

    /// Returns the largest id plus one; 0 if the vocabulary is empty.
    pub fn num_ids(&self) -> u32 {
        self.num_ids
    }

    /// Returns the narrowest width that fits all ids.
    pub fn token_width(&self) -> TokenWidth {
        TokenWidth::for_vocabulary(self.num_ids)
    }

    /// Returns the approximate memory of a thread that tokenises documents, bytes.
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
    /// Reads the mark from the file: the library's types do not expose it.
    fn from_config(config: &serde_json::Value, lone_mark: Option<u32>) -> Self {
        let pre_tokenizers = components(&config["pre_tokenizer"], "pretokenizers");
        if pre_tokenizers.iter().any(|component| adds_metaspace(component)) {
            return Self::Metaspace { lone_mark };
        }
        for component in components(&config["normalizer"], "normalizers") {
            if component["type"] == "Prepend" && component["prepend"] == MARK {
                return Self::Prepended { lone_mark };
            }
        }
        if pre_tokenizers.iter().any(|component| component["type"] == "ByteLevel") {
            return Self::ByteLevel;
        }
        Self::Plain
    }
}

/// Returns the components of a normalizer or pre-tokenizer, which may be a sequence or absent.
fn components<'c>(config: &'c serde_json::Value, list: &str) -> Vec<&'c serde_json::Value> {
    match config {
        serde_json::Value::Null => Vec::new(),
        sequence if sequence["type"] == "Sequence" => {
            sequence[list].as_array().map(|list| list.iter().collect()).unwrap_or_default()
        }
        component => vec![component],
    }
}

fn adds_metaspace(component: &serde_json::Value) -> bool {
    // Newer files have `prepend_scheme`, older ones `add_prefix_space`.
    let scheme = component["prepend_scheme"].as_str().map(|scheme| scheme != "never");
    component["type"] == "Metaspace"
        && scheme.or(component["add_prefix_space"].as_bool()).unwrap_or(true)
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

//! Conversion of text to the token ids of an index.
//!
//! *Documents* are encoded without special tokens. *Query words* get the ids that the word has in
//! running text, after a space (`word_context.rs`):
//!
//! * `▁Paris` (Llama 2, Gemma and their families). If the mark is a token of its own (`▁`, `巴`),
//!   clients of the official engine drop it from a query, and so does this module.
//! * `ĠParis` (GPT-2, Llama 3, Qwen). The space belongs to the word. A word at the start of a
//!   document, or after a line break, quote or bracket, has other ids (`Paris`) and is not found.
//!   The same is true of `(Paris` in the first family. Taking `Paris` as an alternative would also
//!   count it inside other words (`McDonald` is `Mc`, `Donald`), which inflates counts without a
//!   bound; a missed first word deflates them slightly.
//! * `Paris` (BERT), where the word's ids are the same everywhere.
//!
//! In scripts without spaces a word also follows other words, without a mark: `巴黎` has a second form,
//! the ids that it has alone. With `▁` as a token of its own both are the same.
//!
//! A word with an unknown token has no ids: it would match every other unknown word.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::text::bpe_cache::{BpeCache, MARK};
use crate::text::word_context::WordContext;
use crate::token_width::TokenWidth;

/// A Hugging Face `tokenizer.json`.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    word_context: WordContext,
    /// Id of `▁`, which is removed from the start of a query word.
    lone_mark: Option<u32>,
    unknown: Option<UnknownToken>,
    bpe_cache: Option<Arc<BpeCache>>,
    json: Vec<u8>,
    fingerprint: String,
    num_ids: u32,
}

/// The token of text outside the vocabulary.
#[derive(Debug, Clone)]
struct UnknownToken {
    id: u32,
    piece: String,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`, or that of a folder.
    ///
    /// # Errors
    /// Fails if the file cannot be read or the `tokenizers` library does not support it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = if path.is_dir() { path.join("tokenizer.json") } else { path.to_owned() };
        let json = std::fs::read(&file).map_err(Error::io("read", &file))?;
        Self::parse(json, &file)
    }

    /// Parses the content of a `tokenizer.json`.
    ///
    /// # Errors
    /// Fails if the `tokenizers` library does not support it.
    pub fn from_bytes(json: impl Into<Vec<u8>>) -> Result<Self> {
        Self::parse(json.into(), &PathBuf::from("(tokenizer in memory)"))
    }

    fn parse(json: Vec<u8>, path: &Path) -> Result<Self> {
        let unusable = |error: corver_tokenizer::TokenizerError| {
            let message = format!("{}: not a usable tokenizer.json: {error}", path.display());
            Error::InvalidInput(message)
        };
        let corver_tokenizer::TokenizerFile { tokenizer: inner, json: config } =
            corver_tokenizer::parse(&json).map_err(unusable)?;
        let vocabulary = inner.get_vocab(true);
        let num_ids = vocabulary.values().max().map_or(0, |&id| id.saturating_add(1));
        let word_context = WordContext::find(&inner, vocabulary).map_err(|problem| {
            Error::InvalidInput(format!(
                "failed to find out how {} marks the start of a word: {problem}; words cannot be \
                 counted with it: use another tokenizer",
                path.display()
            ))
        })?;
        let lone_mark = inner.token_to_id(MARK);
        let unknown = UnknownToken::find(&config["model"], &inner);
        let bpe_cache = BpeCache::new(&config, &inner).map(Arc::new);
        let fingerprint = blake3::hash(&json).to_hex().to_string();
        Ok(Self { inner, word_context, lone_mark, unknown, bpe_cache, json, fingerprint, num_ids })
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
        match self.word_context {
            WordContext::Alone { omits_mark_before_space: true } if begins_with_space => {
                self.encode(&format!(" {text}"))
            }
            _ => self.encode(text),
        }
    }

    /// Encodes a word, or a phrase, as in running text. The result is empty if the word has no ids.
    ///
    /// # Errors
    /// Fails as [`Tokenizer::encode_document`] does, or if the word's ids depend on its neighbours.
    pub fn encode_word(&self, word: &str) -> Result<Vec<u32>> {
        let mut ids = match &self.word_context {
            _ if word.is_empty() => Vec::new(),
            WordContext::Alone { .. } => self.encode_document(word)?,
            WordContext::Space if word.starts_with(' ') => self.encode(word)?,
            WordContext::Space => self.encode(&format!(" {word}"))?,
            WordContext::Word(before) => before.encode(&self.inner, word.trim_start())?,
        };
        self.clean_word(word, &mut ids);
        Ok(ids)
    }

    /// Encodes a word in each form that it has in running text, of which an occurrence has exactly
    /// one: as [`Tokenizer::encode_word`] does, and in scripts without spaces as between other words.
    ///
    /// # Errors
    /// Fails as [`Tokenizer::encode_word`] does.
    pub fn encode_word_forms(&self, word: &str) -> Result<Vec<Vec<u32>>> {
        let after_space = self.encode_word(word)?;
        if matches!(self.word_context, WordContext::Alone { .. })
            || !begins_script_without_spaces(word)
        {
            return Ok(vec![after_space]);
        }
        let mut alone = self.encode(word)?;
        self.clean_word(word, &mut alone);
        if alone.is_empty() {
            return Ok(vec![after_space]);
        }
        // The form alone then matches after a space too.
        if after_space.windows(alone.len()).any(|ids| ids == alone) {
            return Ok(vec![alone]);
        }
        Ok(vec![after_space, alone])
    }

    /// Removes the mark before a word, and all ids of a word that is not in the vocabulary.
    fn clean_word(&self, word: &str, ids: &mut Vec<u32>) {
        if self.lone_mark.is_some() && ids.first().copied() == self.lone_mark {
            ids.remove(0);
        }
        if let Some(unknown) = &self.unknown
            && ids.contains(&unknown.id)
            && !word.contains(&unknown.piece)
        {
            ids.clear();
        }
    }

    /// Decodes ids. Special tokens and unknown ids are omitted.
    ///
    /// # Errors
    /// Fails if the tokenizer's decoder fails.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        self.inner.decode(ids, true).map_err(Error::not_tokenised)
    }

    /// Decodes ids, special tokens included. Unknown ids are omitted.
    pub(crate) fn decode_all(&self, ids: &[u32]) -> Result<String> {
        self.inner.decode(ids, false).map_err(Error::not_tokenised)
    }

    /// Returns ids without the special tokens at the start and at the end.
    pub(crate) fn trim_special<'i>(&self, ids: &'i [u32]) -> &'i [u32] {
        let mut trimmed = ids;
        while let [first, rest @ ..] = trimmed
            && self.is_special(*first)
        {
            trimmed = rest;
        }
        while let [rest @ .., last] = trimmed
            && self.is_special(*last)
        {
            trimmed = rest;
        }
        trimmed
    }

    fn is_special(&self, id: u32) -> bool {
        self.inner
            .id_to_token(id)
            .is_some_and(|piece| self.inner.get_added_vocabulary().is_special_token(&piece))
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

    /// Checks that all ids fit tokens of a width.
    pub(crate) fn check_width(&self, width: TokenWidth) -> Result<()> {
        let largest = self.num_ids.saturating_sub(1);
        // A vocabulary of all bytes has the id of the separator too, which no text uses.
        if largest > width.separator() {
            return Err(Error::token_too_large(largest, width));
        }
        Ok(())
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

impl UnknownToken {
    /// Returns the unknown token of a model; `None` if it has none.
    fn find(model: &serde_json::Value, tokenizer: &tokenizers::Tokenizer) -> Option<Self> {
        if let Some(piece) = model["unk_token"].as_str() {
            let id = tokenizer.token_to_id(piece)?;
            return Some(Self { id, piece: piece.to_owned() });
        }
        let id = u32::try_from(model["unk_id"].as_u64()?).ok()?;
        Some(Self { id, piece: tokenizer.id_to_token(id)? })
    }
}

/// True if a word begins with a letter of Thai, Lao, Tibetan, Burmese, Khmer, Japanese or Chinese.
fn begins_script_without_spaces(word: &str) -> bool {
    matches!(
        word.chars().next(),
        Some(
            '\u{e00}'..='\u{109f}'
            | '\u{1780}'..='\u{17ff}'
            | '\u{3040}'..='\u{30ff}'
            | '\u{31f0}'..='\u{31ff}'
            | '\u{3400}'..='\u{9fff}'
            | '\u{f900}'..='\u{faff}'
            | '\u{ff66}'..='\u{ff9d}'
            | '\u{20000}'..='\u{3ffff}',
        )
    )
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
    fn tokenizer_is_read_from_file_or_folder() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokenizer.json");
        assert!(Tokenizer::open(folder.path()).is_err());
        std::fs::write(&file, format!(r#"{{"version":"1.0","added_tokens":[],"model":{BPE}}}"#))
            .unwrap();
        for path in [folder.path(), &file] {
            assert_eq!(Tokenizer::open(path).unwrap().encode_document("ab").unwrap(), [1, 2]);
        }
    }

    #[test]
    fn invalid_tokenizer_json_is_rejected() {
        let error = Tokenizer::from_bytes("{}").unwrap_err().to_string();
        assert!(error.contains(": not a usable tokenizer.json: "), "{error}");
    }
}

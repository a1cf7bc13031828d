//! Text ↔ token ids, with the characters of each token.

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;

use corver_core::Compatibility;
use corver_core::compat::spans_of_pieces;
use serde::de::IgnoredAny;
use serde_json::Value as Json;
use tokenizers::Tokenizer;

use crate::clean_up::clean_up;
use crate::error::{PretrainedError, Result};
use crate::spans::token_spans;

/// A tokenizer without chat template or stop tokens, for completions of another program.
#[derive(Debug)]
pub struct TextTokenizer {
    tokenizer: Tokenizer,
    special: HashSet<u32>,
    /// True if decoding removes the spaces before punctuation.
    cleans_up: bool,
}

/// The text of a completion, with the characters of each token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// Text of all tokens together, without special tokens.
    pub text: String,
    /// `[T]` range of characters of `text` that each token covers. Pieces of one character all cover
    /// it. `None` for a token that decoding omits.
    pub token_spans: Vec<Option<Range<usize>>>,
}

impl TextTokenizer {
    /// Wraps a tokenizer. `cleans_up` is `clean_up_tokenization_spaces` of tokenizer_config.json:
    /// decoding removes the spaces before punctuation.
    #[must_use]
    pub fn new(tokenizer: Tokenizer, cleans_up: bool) -> Self {
        let added = tokenizer.get_added_tokens_decoder();
        let special =
            added.into_iter().filter(|(_, token)| token.special).map(|(id, _)| id).collect();
        Self { tokenizer, special, cleans_up }
    }

    /// Parses the content of a tokenizer.json; `origin` is its path in errors.
    ///
    /// # Errors
    /// Fails if the content is not a tokenizer.
    pub fn from_json(json: &str, cleans_up: bool, origin: &Path) -> Result<Self> {
        parse_tokenizer(json.as_bytes(), origin).map(|tokenizer| Self::new(tokenizer, cleans_up))
    }

    /// Reads a tokenizer.json, or that of a folder. A tokenizer_config.json in the same folder decides
    /// if decoding cleans up.
    ///
    /// # Errors
    /// Fails if a file is missing or malformed.
    pub fn open(path: &Path) -> Result<Self> {
        let file = if path.is_dir() { path.join("tokenizer.json") } else { path.to_owned() };
        let tokenizer = read_tokenizer(&file)?;
        let config_path = file.with_file_name("tokenizer_config.json");
        let config = if config_path.exists() { read_json(&config_path)? } else { Json::Null };
        Ok(Self::new(tokenizer, cleans_up(&config)))
    }

    /// Encodes a text. Special tokens in the text are recognised; none is added.
    ///
    /// # Errors
    /// Fails if the tokenizer cannot encode the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        Ok(self.tokenizer.encode_fast(text, false).map_err(tokenizer_error)?.get_ids().to_vec())
    }

    /// Decodes ids without special tokens. Cleans up if tokenizer_config.json requests it.
    ///
    /// # Errors
    /// Fails if the tokenizer's decoder fails.
    pub fn decode(&self, tokens: &[u32]) -> Result<String> {
        let text = self.decode_raw(tokens)?;
        Ok(if self.cleans_up { clean_up(&text).text } else { text })
    }

    /// Decodes ids without special tokens, and does not clean up.
    pub(crate) fn decode_raw(&self, tokens: &[u32]) -> Result<String> {
        self.tokenizer.decode(tokens, true).map_err(tokenizer_error)
    }

    /// Decodes ids, with the characters of each token.
    ///
    /// # Errors
    /// Fails as [`Self::decode`].
    pub fn decode_with_spans(&self, tokens: &[u32]) -> Result<Decoded> {
        let mut text = self.decode_raw(tokens)?;
        let visible: Vec<u32> = tokens.iter().copied().filter(|&id| !self.is_hidden(id)).collect();
        let mut visible_spans = token_spans(&text, &visible, |ids| self.decode_raw(ids))?;
        if self.cleans_up {
            let cleaned = clean_up(&text);
            for span in &mut visible_spans {
                *span = cleaned.span(span);
            }
            text = cleaned.text;
        }
        let mut next_span = visible_spans.into_iter();
        let mut token_spans = Vec::with_capacity(tokens.len());
        for &id in tokens {
            token_spans.push(if self.is_hidden(id) { None } else { next_span.next() });
        }
        Ok(Decoded { text, token_spans })
    }

    /// Decodes ids, with exact spans or with those of the published code.
    ///
    /// # Errors
    /// Fails as [`Self::decode`].
    pub fn decode_as(&self, tokens: &[u32], compatibility: Compatibility) -> Result<Decoded> {
        let decoded = self.decode_with_spans(tokens)?;
        Ok(match compatibility {
            Compatibility::Paper => decoded,
            Compatibility::Reference => {
                Decoded { token_spans: spans_of_pieces(&self.token_texts(tokens)?), ..decoded }
            }
        })
    }

    /// Decodes each token alone, `[T]`; `None` for a token that decoding omits. The published code
    /// computes spans from these texts.
    ///
    /// # Errors
    /// Fails as [`Self::decode`].
    pub fn token_texts(&self, tokens: &[u32]) -> Result<Vec<Option<String>>> {
        tokens
            .iter()
            .map(|&id| if self.is_hidden(id) { Ok(None) } else { self.decode(&[id]).map(Some) })
            .collect()
    }

    /// Returns the id of a token of the vocabulary; `None` if there is no such token.
    #[must_use]
    pub fn id(&self, token: &str) -> Option<u32> {
        self.tokenizer.token_to_id(token)
    }

    /// Returns the highest id plus one. A model's embedding may have more rows.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.tokenizer.get_vocab(true).into_values().max().map_or(0, |id| id as usize + 1)
    }

    /// Returns true for special tokens, and for ids of the model's padding that the vocabulary lacks.
    fn is_hidden(&self, id: u32) -> bool {
        self.special.contains(&id) || self.tokenizer.id_to_token(id).is_none()
    }
}

/// Reads a tokenizer.json.
///
/// # Errors
/// Fails if the file is missing or malformed.
pub fn read_tokenizer(path: &Path) -> Result<Tokenizer> {
    let json = std::fs::read(path).map_err(PretrainedError::io("read", path))?;
    parse_tokenizer(corver_files::strip_bom(&json), path)
}

fn parse_tokenizer(json: &[u8], path: &Path) -> Result<Tokenizer> {
    let expected = "a tokenizer of the `tokenizers` library";
    // The library panics on text that is not JSON.
    serde_json::from_slice::<IgnoredAny>(json)
        .map_err(|error| PretrainedError::malformed(path, expected, error))?;
    Tokenizer::from_bytes(json).map_err(|error| PretrainedError::malformed(path, expected, error))
}

pub(crate) fn read_json(path: &Path) -> Result<Json> {
    let text = corver_files::read_text(path).map_err(PretrainedError::io("read", path))?;
    serde_json::from_str(&text).map_err(|error| PretrainedError::malformed(path, "JSON", error))
}

/// Returns `clean_up_tokenization_spaces` of a tokenizer_config.json; false if it is absent.
pub(crate) fn cleans_up(config: &Json) -> bool {
    config.get("clean_up_tokenization_spaces").and_then(Json::as_bool).unwrap_or_default()
}

fn tokenizer_error(error: tokenizers::Error) -> PretrainedError {
    PretrainedError::InvalidInput(format!("tokenizer: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{byte_level_json, byte_level_tokenizer, write_tokenizer};

    #[test]
    fn special_tokens_have_no_characters() {
        let tokenizer = byte_level_tokenizer();
        let end = tokenizer.id("<|im_end|>").unwrap();
        let tokens = [tokenizer.encode("ab").unwrap(), vec![end, 9_999_999]].concat();
        let decoded = tokenizer.decode_with_spans(&tokens).unwrap();
        assert_eq!(decoded.text, "ab");
        assert_eq!(decoded.token_spans, [Some(0..1), Some(1..2), None, None]);
        let texts = tokenizer.token_texts(&tokens).unwrap();
        assert_eq!(texts, [Some("a".into()), Some("b".into()), None, None]);
    }

    #[test]
    fn tokenizer_loads_from_file_folder_or_json() {
        let folder = tempfile::tempdir().unwrap();
        write_tokenizer(folder.path(), &byte_level_json());
        let file = folder.path().join("tokenizer.json");
        let json = std::fs::read_to_string(&file).unwrap();
        let tokens = [10, 20, 256, 30];
        let decoded = byte_level_tokenizer().decode_with_spans(&tokens).unwrap();
        for tokenizer in [
            TextTokenizer::open(folder.path()).unwrap(),
            TextTokenizer::open(&file).unwrap(),
            TextTokenizer::from_json(&json, false, &file).unwrap(),
        ] {
            assert_eq!(tokenizer.decode_with_spans(&tokens).unwrap(), decoded);
        }
    }

    #[test]
    fn reference_spans_come_from_single_token_decoding() {
        let tokenizer = byte_level_tokenizer();
        // “é” is two tokens, each of which is an undecodable byte if it is decoded alone.
        let tokens = ["Ã", "©", "a"].map(|byte| tokenizer.id(byte).unwrap());
        let exact = tokenizer.decode_as(&tokens, Compatibility::Paper).unwrap();
        assert_eq!(
            (exact.text.as_str(), exact.token_spans),
            ("éa", vec![Some(0..1), Some(0..1), Some(1..2)])
        );
        let published = tokenizer.decode_as(&tokens, Compatibility::Reference).unwrap();
        assert_eq!(
            (published.text.as_str(), published.token_spans),
            ("éa", vec![Some(0..1), Some(1..2), Some(2..3)])
        );
    }

    #[test]
    fn invalid_tokenizer_error_names_path() {
        let error = TextTokenizer::open(Path::new("/nowhere")).unwrap_err().to_string();
        assert!(error.contains("cannot read /nowhere"), "{error}");
        let error =
            TextTokenizer::from_json("{", false, Path::new("mine")).unwrap_err().to_string();
        assert!(error.starts_with("mine: expected a tokenizer"), "{error}");
    }
}

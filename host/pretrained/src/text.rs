//! Text ↔ ids, with the characters of each token.

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;

use corver_core::Compatibility;
use corver_core::compat::spans_of_pieces;
use serde::de::IgnoredAny;
use serde_json::Value as Json;
use tokenizers::Tokenizer;

use crate::clean_up::{self, CleanedUp};
use crate::error::{PretrainedError, Result};
use crate::spans::token_spans;

/// A tokenizer without chat template or stop tokens: it reads what somebody else drew.
#[derive(Debug)]
pub struct TextTokenizer {
    tokenizer: Tokenizer,
    special: HashSet<u32>,
    /// `clean_up_tokenization_spaces` of tokenizer_config.json.
    cleans_up: bool,
}

/// A completion as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// All tokens decoded together, special ones skipped.
    pub text: String,
    /// `[T]` the characters of `text` that each token stands for, exactly; pieces of one character
    /// all cover it. `None` for a token that decoding leaves out.
    pub token_spans: Vec<Option<Range<usize>>>,
}

impl TextTokenizer {
    /// `cleans_up`: decoding drops the spaces before punctuation, as `clean_up_tokenization_spaces`
    /// of tokenizer_config.json asks.
    #[must_use]
    pub fn new(tokenizer: Tokenizer, cleans_up: bool) -> Self {
        let added = tokenizer.get_added_tokens_decoder();
        let special =
            added.into_iter().filter(|(_, token)| token.special).map(|(id, _)| id).collect();
        Self { tokenizer, special, cleans_up }
    }

    /// Reads the text of a tokenizer.json; `origin` stands in its errors.
    ///
    /// # Errors
    /// A text that is no tokenizer.
    pub fn from_json(json: &str, cleans_up: bool, origin: &Path) -> Result<Self> {
        parse_tokenizer(json.as_bytes(), origin).map(|tokenizer| Self::new(tokenizer, cleans_up))
    }

    /// Reads a tokenizer.json, or that of a folder; a tokenizer_config.json beside it says whether
    /// decoding cleans up.
    ///
    /// # Errors
    /// A file that is missing or malformed.
    pub fn open(path: &Path) -> Result<Self> {
        let file = if path.is_dir() { path.join("tokenizer.json") } else { path.to_owned() };
        let tokenizer = read_tokenizer(&file)?;
        let config = file.with_file_name("tokenizer_config.json");
        let config = if config.exists() { read_json(&config)? } else { Json::Null };
        Ok(Self::new(tokenizer, cleans_up(&config)))
    }

    /// Text → ids. Special tokens written in the text count as such; none is added.
    ///
    /// # Errors
    /// Where the tokenizer has no way to encode the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        Ok(self.tokenizer.encode_fast(text, false).map_err(refused)?.get_ids().to_vec())
    }

    /// Ids → text, special tokens skipped, and spaces too where tokenizer_config.json asks for it.
    ///
    /// # Errors
    /// Where the tokenizer's decoder fails.
    pub fn decode(&self, tokens: &[u32]) -> Result<String> {
        let text = self.decode_all(tokens)?;
        Ok(if self.cleans_up { clean_up::clean_up(&text).text } else { text })
    }

    /// As [`Self::decode`], without cleaning up.
    pub(crate) fn decode_all(&self, tokens: &[u32]) -> Result<String> {
        self.tokenizer.decode(tokens, true).map_err(refused)
    }

    /// Ids → text, with the characters of each token.
    ///
    /// # Errors
    /// As [`Self::decode`].
    pub fn decode_with_spans(&self, tokens: &[u32]) -> Result<Decoded> {
        let text = self.decode_all(tokens)?;
        let visible: Vec<u32> = tokens.iter().copied().filter(|&id| !self.is_hidden(id)).collect();
        let mut spans = token_spans(&text, &visible, |ids| self.decode_all(ids))?;
        let text = if self.cleans_up {
            let cleaned: CleanedUp = clean_up::clean_up(&text);
            spans.iter_mut().for_each(|span| *span = cleaned.span(span));
            cleaned.text
        } else {
            text
        };
        let mut spans = spans.into_iter();
        let token_spans =
            tokens.iter().map(|&id| if self.is_hidden(id) { None } else { spans.next() }).collect();
        Ok(Decoded { text, token_spans })
    }

    /// As [`Self::decode_with_spans`], or with the characters that the published code takes for
    /// those of each token.
    ///
    /// # Errors
    /// As [`Self::decode`].
    pub fn decode_as(&self, tokens: &[u32], compatibility: Compatibility) -> Result<Decoded> {
        let decoded = self.decode_with_spans(tokens)?;
        Ok(match compatibility {
            Compatibility::Paper => decoded,
            Compatibility::Reference => {
                Decoded { token_spans: spans_of_pieces(&self.token_texts(tokens)?), ..decoded }
            }
        })
    }

    /// `[T]` each token decoded alone, `None` where decoding leaves it out: what the published code
    /// aligns with.
    ///
    /// # Errors
    /// As [`Self::decode`].
    pub fn token_texts(&self, tokens: &[u32]) -> Result<Vec<Option<String>>> {
        tokens
            .iter()
            .map(|&id| if self.is_hidden(id) { Ok(None) } else { self.decode(&[id]).map(Some) })
            .collect()
    }

    /// The id of a token as the vocabulary spells it.
    #[must_use]
    pub fn id(&self, token: &str) -> Option<u32> {
        self.tokenizer.token_to_id(token)
    }

    /// One more than the highest id; a model's embedding may have more rows.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.tokenizer.get_vocab(true).into_values().max().map_or(0, |id| id as usize + 1)
    }

    /// Special tokens, and ids that only the model's padded vocabulary has.
    fn is_hidden(&self, id: u32) -> bool {
        self.special.contains(&id) || self.tokenizer.id_to_token(id).is_none()
    }
}

/// Reads a tokenizer.json.
///
/// # Errors
/// A file that is missing or malformed.
pub fn read_tokenizer(path: &Path) -> Result<Tokenizer> {
    parse_tokenizer(&std::fs::read(path).map_err(PretrainedError::io("read", path))?, path)
}

fn parse_tokenizer(json: &[u8], path: &Path) -> Result<Tokenizer> {
    let malformed = |got: String| {
        PretrainedError::malformed(path, "a tokenizer of the `tokenizers` library", got)
    };
    // The library panics on text that is no JSON.
    serde_json::from_slice::<IgnoredAny>(json).map_err(|error| malformed(error.to_string()))?;
    Tokenizer::from_bytes(json).map_err(|error| malformed(error.to_string()))
}

pub(crate) fn read_json(path: &Path) -> Result<Json> {
    let text = std::fs::read_to_string(path).map_err(PretrainedError::io("read", path))?;
    serde_json::from_str(&text).map_err(|error| PretrainedError::malformed(path, "JSON", error))
}

/// What a tokenizer_config.json says of cleaning up.
pub(crate) fn cleans_up(config: &Json) -> bool {
    config.get("clean_up_tokenization_spaces").and_then(Json::as_bool).unwrap_or_default()
}

fn refused(error: tokenizers::Error) -> PretrainedError {
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
        // “é” is two tokens, each of which is an undecodable byte when it stands alone.
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

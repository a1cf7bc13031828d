//! Text ↔ token ids, with the characters of each token.

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;

use corver_core::Compatibility;
use corver_core::compat::spans_of_pieces;
use corver_core::template::ALL_TAGS;
use tokenizers::Tokenizer;

use crate::clean_up::{CleanUp, clean_up};
use crate::error::{PretrainedError, Result};
use crate::json::read_json_if_exists;
use crate::spans::token_spans;

/// A tokenizer without chat template or stop tokens, for completions of another program.
#[derive(Debug)]
pub struct TextTokenizer {
    tokenizer: Tokenizer,
    /// Special tokens, without the tags of a completion: some models have tags as special tokens, and
    /// an answer without tags is no answer.
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
    /// Wraps a tokenizer. `clean_up` decides if decoding removes the spaces before punctuation.
    #[must_use]
    pub fn new(tokenizer: Tokenizer, clean_up: CleanUp) -> Self {
        let added = tokenizer.get_added_tokens_decoder();
        let special = added
            .into_iter()
            .filter(|(_, token)| token.special && !ALL_TAGS.contains(&token.content.as_str()))
            .map(|(id, _)| id)
            .collect();
        Self { cleans_up: clean_up.applies_to(&tokenizer), tokenizer, special }
    }

    /// Parses the content of a tokenizer.json; `origin` is its path in errors.
    ///
    /// # Errors
    /// Fails if the content is not a tokenizer.
    pub fn from_json(json: &str, clean_up: CleanUp, origin: &Path) -> Result<Self> {
        parse_tokenizer(json.as_bytes(), origin).map(|tokenizer| Self::new(tokenizer, clean_up))
    }

    /// Reads a tokenizer.json, or that of a folder. A tokenizer_config.json in the same folder decides
    /// if decoding cleans up.
    ///
    /// # Errors
    /// Fails if a file is missing or malformed.
    pub fn open(path: &Path) -> Result<Self> {
        let file = if path.is_dir() { path.join("tokenizer.json") } else { path.to_owned() };
        let tokenizer = read_tokenizer(&file)?;
        let config = read_json_if_exists(&file.with_file_name("tokenizer_config.json"))?;
        Ok(Self::new(tokenizer, CleanUp::read(&config)))
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
        self.decode_all(&self.visible(tokens))
    }

    /// Decodes ids with special tokens, and does not clean up.
    pub(crate) fn decode_all(&self, tokens: &[u32]) -> Result<String> {
        self.tokenizer.decode(tokens, false).map_err(tokenizer_error)
    }

    /// Returns the ids that decoding does not omit.
    fn visible(&self, tokens: &[u32]) -> Vec<u32> {
        tokens.iter().copied().filter(|&id| !self.is_hidden(id)).collect()
    }

    /// Decodes ids, with the characters of each token.
    ///
    /// # Errors
    /// Fails as [`Self::decode`].
    pub fn decode_with_spans(&self, tokens: &[u32]) -> Result<Decoded> {
        let mut text = self.decode_raw(tokens)?;
        let mut visible_spans =
            token_spans(&text, &self.visible(tokens), |ids| self.decode_all(ids))?;
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

    /// Checks that a model with `rows` rows in its embedding has every token that a text can contain.
    ///
    /// A special token may be beyond, such as one for padding that was added to the tokenizer alone. A
    /// prompt that contains it is an error.
    ///
    /// # Errors
    /// Fails with the first token that is beyond.
    pub fn check_vocabulary(&self, rows: usize) -> Result<()> {
        check_vocabulary(&self.tokenizer, rows)
    }

    /// Returns true for special tokens, and for ids of the model's padding that the vocabulary lacks.
    fn is_hidden(&self, id: u32) -> bool {
        self.special.contains(&id) || self.tokenizer.id_to_token(id).is_none()
    }
}

/// Reads a tokenizer.json; see [`corver_tokenizer::parse`].
///
/// # Errors
/// Fails if the file is missing or malformed.
pub fn read_tokenizer(path: &Path) -> Result<Tokenizer> {
    let json = std::fs::read(path).map_err(PretrainedError::io("read", path))?;
    parse_tokenizer(&json, path)
}

/// Checks a tokenizer as [`TextTokenizer::check_vocabulary`] does.
///
/// # Errors
/// Fails with the first token that is beyond.
pub fn check_vocabulary(tokenizer: &Tokenizer, rows: usize) -> Result<()> {
    let added = tokenizer.get_added_tokens_decoder();
    let mut beyond = Vec::new();
    for (token, id) in tokenizer.get_vocab(true) {
        if id as usize >= rows && !added.get(&id).is_some_and(|added_token| added_token.special) {
            beyond.push((id, token));
        }
    }
    match beyond.into_iter().min() {
        None => Ok(()),
        Some((id, token)) => Err(PretrainedError::InvalidModel(format!(
            "the tokenizer has the token {token:?} with the id {id}, and the model's embedding has \
             {rows} rows: they belong to different models"
        ))),
    }
}

fn parse_tokenizer(json: &[u8], path: &Path) -> Result<Tokenizer> {
    match corver_tokenizer::parse(json) {
        Ok(file) => Ok(file.tokenizer),
        Err(error) => {
            Err(PretrainedError::malformed(path, "a tokenizer of the `tokenizers` library", error))
        }
    }
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

    /// A tokenizer whose tags are special tokens.
    fn tag_tokenizer() -> TextTokenizer {
        let mut json = byte_level_json();
        for (n, tag) in ALL_TAGS.into_iter().enumerate() {
            let mut token = json["added_tokens"][0].clone();
            token["id"] = (258 + n).into();
            token["content"] = tag.into();
            json["added_tokens"].as_array_mut().unwrap().push(token);
        }
        TextTokenizer::from_json(&json.to_string(), CleanUp::Never, Path::new("tags")).unwrap()
    }

    #[test]
    fn tags_that_are_special_tokens_are_text() {
        let tokenizer = tag_tokenizer();
        let text = "<think>a</think><answer>b</answer>";
        let tokens = tokenizer.encode(text).unwrap();
        assert_eq!(tokens.len(), 6, "{tokens:?}");
        let end = tokenizer.id("<|im_end|>").unwrap();
        let decoded = tokenizer.decode_with_spans(&[&tokens[..], &[end]].concat()).unwrap();
        assert_eq!(decoded.text, text);
        let spans = [0..7, 7..8, 8..16, 16..24, 24..25, 25..34].map(Some);
        assert_eq!(decoded.token_spans, [&spans[..], &[None]].concat());
    }

    /// The texts are `decode` of `transformers` 5.24 with `clean_up_tokenization_spaces`.
    #[test]
    fn bpe_does_not_clean_up() {
        let text = "the word 'smile' , he said .";
        let json = byte_level_json().to_string();
        let bpe = |clean_up| TextTokenizer::from_json(&json, clean_up, Path::new("bpe")).unwrap();
        for (clean_up, expected) in [
            (CleanUp::Never, text),
            (CleanUp::ExceptBpe, text),
            (CleanUp::Always, "the word'smile', he said."),
        ] {
            let tokenizer = bpe(clean_up);
            let tokens = tokenizer.encode(text).unwrap();
            assert_eq!(tokenizer.decode(&tokens).unwrap(), expected);
        }
        let words = serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
            "normalizer": null, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null,
            "decoder": null,
            "model": {"type": "WordLevel", "unk_token": "?", "vocab": {"he": 0, "said": 1, ".": 2, "?": 3}}
        });
        let json = words.to_string();
        let words =
            TextTokenizer::from_json(&json, CleanUp::ExceptBpe, Path::new("words")).unwrap();
        assert_eq!(words.decode(&words.encode("he said .").unwrap()).unwrap(), "he said.");
    }

    #[test]
    fn only_special_tokens_may_be_beyond_the_embedding() {
        let json = byte_level_json().to_string();
        let tokenizer = TextTokenizer::from_json(&json, CleanUp::Never, Path::new("x")).unwrap();
        tokenizer.check_vocabulary(258).unwrap();
        tokenizer.check_vocabulary(256).unwrap();
        let error = tokenizer.check_vocabulary(250).unwrap_err().to_string();
        assert!(error.contains("the id 250") && error.contains("250 rows"), "{error}");
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
            TextTokenizer::from_json(&json, CleanUp::Never, &file).unwrap(),
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
        let error = TextTokenizer::from_json("{", CleanUp::Never, Path::new("mine"))
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("mine: expected a tokenizer"), "{error}");
    }
}

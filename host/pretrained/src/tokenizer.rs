//! The policy's tokenizer: chat → ids, ids → text with the characters of each token.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::path::Path;
use std::process::Command;

use corver_core::InvalidSetting;
use serde::de::IgnoredAny;
use serde_json::Value as Json;
use tokenizers::Tokenizer;

use crate::chat::{Chat, Switches};
use crate::clean_up::{self, CleanedUp};
use crate::error::{PretrainedError, Result};
use crate::spans::token_spans;

/// Tokens that end an answer, wherever the vocabulary has them (the paper's evaluation).
const STOP_TOKENS: [&str; 3] = ["<|im_end|>", "<|endoftext|>", "<|eot_id|>"];

/// Tokens without text of their own that a stop text may have in it.
const SILENT_TOKENS: usize = 8;

/// A tokenizer with its chat template and stop tokens.
#[derive(Debug)]
pub struct ChatTokenizer {
    tokenizer: Tokenizer,
    chat: Chat,
    special: HashSet<u32>,
    stop: Vec<u32>,
    stop_texts: Vec<String>,
    /// `clean_up_tokenization_spaces` of tokenizer_config.json.
    cleans_up: bool,
}

/// A completion as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// All tokens decoded together, special ones skipped.
    pub text: String,
    /// `[T]` the characters of `text` that each token stands for, exactly; pieces of one character all cover it. `None`
    /// for a token that decoding leaves out.
    pub token_spans: Vec<Option<Range<usize>>>,
}

impl ChatTokenizer {
    /// Reads tokenizer.json, tokenizer_config.json, chat_template.jinja and generation_config.json of a Hugging Face
    /// folder; the last two may be absent. This process renders the chat template, which has no bound on memory: for folders that
    /// are trusted.
    ///
    /// # Errors
    /// A file that is missing or malformed, no chat template, or no stop token at all.
    pub fn load(folder: &Path) -> Result<Self> {
        Self::read(folder, None, Switches::new())
    }

    /// As [`Self::load`]; a process of its own renders the chat template, within 1 GiB of memory and 5 s for a prompt. `program`
    /// starts it, and it calls [`crate::render_as_child`]. The template sees `switches` by their names.
    ///
    /// # Errors
    /// As [`Self::load`], and where that process cannot be started or is ended by its limits.
    pub fn load_with_child(folder: &Path, program: Command, switches: Switches) -> Result<Self> {
        Self::read(folder, Some(program), switches)
    }

    fn read(folder: &Path, renderer: Option<Command>, switches: Switches) -> Result<Self> {
        let tokenizer = read_tokenizer(&folder.join("tokenizer.json"))?;
        let config = read_json(&folder.join("tokenizer_config.json"))?;
        let stop = stop_tokens(&tokenizer, folder)?;
        let special =
            tokenizer.get_added_tokens_decoder().into_iter().filter(|(_, t)| t.special).map(|(id, _)| id).collect();
        let cleans_up = config.get("clean_up_tokenization_spaces").and_then(Json::as_bool).unwrap_or_default();
        let chat = Chat::find(folder, &config, renderer, switches)?;
        Ok(Self { tokenizer, chat, special, stop, stop_texts: Vec::new(), cleans_up })
    }

    /// The ids of a chat up to where the assistant's words begin; `system` as the template places it.
    ///
    /// # Errors
    /// A template that refuses these messages.
    pub fn prompt(&self, system: Option<&str>, user: &str) -> Result<Vec<u32>> {
        self.encode(&self.chat.render(system, user)?)
    }

    /// The text of a chat up to where the assistant's words begin.
    ///
    /// # Errors
    /// As [`Self::prompt`].
    pub fn render_chat(&self, system: Option<&str>, user: &str) -> Result<String> {
        self.chat.render(system, user)
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

    fn decode_all(&self, tokens: &[u32]) -> Result<String> {
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
        let token_spans = tokens.iter().map(|&id| if self.is_hidden(id) { None } else { spans.next() }).collect();
        Ok(Decoded { text, token_spans })
    }

    /// `[T]` each token decoded alone, `None` where decoding leaves it out: what the published code aligns with.
    ///
    /// # Errors
    /// As [`Self::decode`].
    pub fn token_texts(&self, tokens: &[u32]) -> Result<Vec<Option<String>>> {
        tokens.iter().map(|&id| if self.is_hidden(id) { Ok(None) } else { self.decode(&[id]).map(Some) }).collect()
    }

    /// Ids that end an answer, ascending.
    #[must_use]
    pub fn stop_tokens(&self) -> &[u32] {
        &self.stop
    }

    /// Texts that end an answer.
    #[must_use]
    pub fn stop_texts(&self) -> &[String] {
        &self.stop_texts
    }

    /// The same tokenizer, with texts that end an answer too. The text stays in the answer.
    ///
    /// # Errors
    /// An empty text.
    pub fn with_stop_texts(self, texts: Vec<String>) -> Result<Self> {
        match texts.iter().any(String::is_empty) {
            true => Err(InvalidSetting {
                key: "policy.stop",
                got: "an empty text".into(),
                expected: "texts that end an answer",
            }
            .into()),
            false => Ok(Self { stop_texts: texts, ..self }),
        }
    }

    /// Whether an answer ends with the last of these tokens: it is a stop token, or completes a stop text.
    ///
    /// # Errors
    /// As [`Self::decode`].
    pub fn ends(&self, tokens: &[u32]) -> Result<bool> {
        let Some((last, before)) = tokens.split_last() else { return Ok(false) };
        if self.stop.contains(last) {
            return Ok(true);
        }
        for stop in &self.stop_texts {
            // A token stands for a byte at least, but for special ones and the few that a decoder puts together.
            let reach = stop.len() + SILENT_TOKENS;
            let recent = &tokens[before.len().saturating_sub(reach)..];
            if self.decode_all(recent)?.contains(stop) {
                return Ok(true);
            }
        }
        Ok(false)
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
    pub(crate) fn is_hidden(&self, id: u32) -> bool {
        self.special.contains(&id) || self.tokenizer.id_to_token(id).is_none()
    }
}

/// Reads a tokenizer.json.
///
/// # Errors
/// A file that is missing or malformed.
pub fn read_tokenizer(path: &Path) -> Result<Tokenizer> {
    let bytes = std::fs::read(path).map_err(PretrainedError::io(path))?;
    let malformed = |got: String| PretrainedError::Malformed {
        path: path.into(),
        expected: "a tokenizer of the `tokenizers` library".into(),
        got,
    };
    // The library panics on text that is no JSON.
    serde_json::from_slice::<IgnoredAny>(&bytes).map_err(|error| malformed(error.to_string()))?;
    Tokenizer::from_bytes(bytes).map_err(|error| malformed(error.to_string()))
}

/// Ids that end an answer, ascending: the usual ones that the vocabulary has, and those of generation_config.json.
///
/// # Errors
/// A generation_config.json that is malformed, or no such token.
pub fn stop_tokens(tokenizer: &Tokenizer, folder: &Path) -> Result<Vec<u32>> {
    let generation = folder.join("generation_config.json");
    let config = if generation.exists() { read_json(&generation)? } else { Json::Null };
    let stop = stop_tokens_of(tokenizer, &config);
    match stop.is_empty() {
        true => Err(PretrainedError::Malformed {
            path: generation,
            expected: format!("eos_token_id, or one of {STOP_TOKENS:?} in the vocabulary"),
            got: "no token that could end an answer".into(),
        }),
        false => Ok(stop),
    }
}

fn stop_tokens_of(tokenizer: &Tokenizer, generation: &Json) -> Vec<u32> {
    let known = STOP_TOKENS.iter().filter_map(|token| tokenizer.token_to_id(token));
    let eos = match generation.get("eos_token_id") {
        Some(Json::Array(ids)) => ids.iter().collect(),
        Some(id) => vec![id],
        None => Vec::new(),
    };
    let eos = eos.into_iter().filter_map(Json::as_u64).filter_map(|id| u32::try_from(id).ok());
    known.chain(eos).collect::<BTreeSet<u32>>().into_iter().collect()
}

pub(crate) fn read_json(path: &Path) -> Result<Json> {
    let text = std::fs::read_to_string(path).map_err(PretrainedError::io(path))?;
    serde_json::from_str(&text).map_err(|e| PretrainedError::Malformed {
        path: path.into(),
        expected: "JSON".into(),
        got: e.to_string(),
    })
}

fn refused(error: tokenizers::Error) -> PretrainedError {
    PretrainedError::Tokenizer { reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::byte_level_tokenizer;

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
    fn the_prompt_is_the_rendered_chat() {
        let tokenizer = byte_level_tokenizer();
        let text = tokenizer.render_chat(Some("s"), "u").unwrap();
        assert_eq!(text, "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n");
        let tokens = tokenizer.prompt(Some("s"), "u").unwrap();
        assert_eq!(tokens, tokenizer.encode(&text).unwrap());
        assert_eq!(tokens[0], tokenizer.id("<|im_start|>").unwrap());
    }

    #[test]
    fn stop_tokens_come_from_the_vocabulary_and_the_generation_config() {
        let tokenizer = byte_level_tokenizer();
        assert_eq!(tokenizer.stop_tokens(), [tokenizer.id("<|im_end|>").unwrap()]);
        let more = serde_json::json!({"eos_token_id": [3, 1]});
        assert_eq!(stop_tokens_of(&tokenizer.tokenizer, &more), [1, 3, tokenizer.id("<|im_end|>").unwrap()]);
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = ChatTokenizer::load(Path::new("/nowhere")).unwrap_err().to_string();
        assert!(error.contains("/nowhere/tokenizer.json"), "{error}");
    }
}

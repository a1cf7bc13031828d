//! The policy's tokenizer: chat → token ids, and the stop condition.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use corver_core::{Compatibility, InvalidSetting};
use serde_json::Value as Json;
use tokenizers::Tokenizer;

use crate::chat::{ChatTemplate, Switches};
use crate::error::{PretrainedError, Result};
use crate::text::{Decoded, TextTokenizer, cleans_up, read_json, read_tokenizer};

/// Stop tokens, as far as the vocabulary has them (the paper's evaluation).
const STOP_TOKENS: [&str; 3] = ["<|im_end|>", "<|endoftext|>", "<|eot_id|>"];

/// Most tokens without text within a stop text.
const SILENT_TOKENS: usize = 8;

/// A tokenizer with its chat template and stop tokens.
#[derive(Debug)]
pub struct ChatTokenizer {
    text: TextTokenizer,
    chat: ChatTemplate,
    stop: Vec<u32>,
    /// Stop token of demonstrations.
    end: u32,
    stop_texts: Vec<String>,
}

impl ChatTokenizer {
    /// Reads tokenizer.json, tokenizer_config.json, chat_template.jinja and generation_config.json
    /// of a Hugging Face folder; the last two may be absent.
    ///
    /// This process renders the chat template, without a limit of memory: the folder must be
    /// trusted.
    ///
    /// # Errors
    /// Fails if a file is missing or malformed, or there is no chat template or no stop token.
    pub fn load(folder: &Path) -> Result<Self> {
        Self::read(folder, None, Switches::new())
    }

    /// Reads a folder as [`Self::load`] does, and renders the chat template in another process, with
    /// limits of 1 GiB of memory and 5 s per prompt.
    ///
    /// `program` starts the process, which calls [`crate::render_as_child`]. The template sees
    /// `switches` by their names.
    ///
    /// # Errors
    /// Fails as [`Self::load`], or if the process cannot be started or exceeds a limit.
    pub fn load_with_child(folder: &Path, program: Command, switches: Switches) -> Result<Self> {
        Self::read(folder, Some(program), switches)
    }

    fn read(folder: &Path, renderer: Option<Command>, switches: Switches) -> Result<Self> {
        let tokenizer = read_tokenizer(&folder.join("tokenizer.json"))?;
        let config = read_json(&folder.join("tokenizer_config.json"))?;
        let stop = stop_tokens(&tokenizer, folder)?;
        let chat = ChatTemplate::find(folder, &config, renderer, switches)?;
        let text = TextTokenizer::new(tokenizer, cleans_up(&config));
        let end = end_token(&text, &config).filter(|end| stop.contains(end)).unwrap_or(stop[0]);
        Ok(Self { text, chat, stop, end, stop_texts: Vec::new() })
    }

    /// Returns the token ids of a prompt up to the start of the assistant's answer.
    ///
    /// # Errors
    /// Fails if the template refuses these messages.
    pub fn prompt(&self, system: Option<&str>, user: &str) -> Result<Vec<u32>> {
        self.encode(&self.chat.render(system, user)?)
    }

    /// Returns the text of a prompt up to the start of the assistant's answer.
    ///
    /// # Errors
    /// Fails as [`Self::prompt`].
    pub fn render_chat(&self, system: Option<&str>, user: &str) -> Result<String> {
        self.chat.render(system, user)
    }

    /// Encodes a text; see [`TextTokenizer::encode`].
    ///
    /// # Errors
    /// Fails as [`TextTokenizer::encode`].
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.text.encode(text)
    }

    /// Decodes ids; see [`TextTokenizer::decode`].
    ///
    /// # Errors
    /// Fails as [`TextTokenizer::decode`].
    pub fn decode(&self, tokens: &[u32]) -> Result<String> {
        self.text.decode(tokens)
    }

    /// Decodes ids with exact spans; see [`TextTokenizer::decode_with_spans`].
    ///
    /// # Errors
    /// Fails as [`TextTokenizer::decode`].
    pub fn decode_with_spans(&self, tokens: &[u32]) -> Result<Decoded> {
        self.text.decode_with_spans(tokens)
    }

    /// Decodes ids with spans of either kind; see [`TextTokenizer::decode_as`].
    ///
    /// # Errors
    /// Fails as [`TextTokenizer::decode`].
    pub fn decode_as(&self, tokens: &[u32], compatibility: Compatibility) -> Result<Decoded> {
        self.text.decode_as(tokens, compatibility)
    }

    /// Decodes each token alone; see [`TextTokenizer::token_texts`].
    ///
    /// # Errors
    /// Fails as [`TextTokenizer::decode`].
    pub fn token_texts(&self, tokens: &[u32]) -> Result<Vec<Option<String>>> {
        self.text.token_texts(tokens)
    }

    /// Returns the ids that end a completion, ascending.
    #[must_use]
    pub fn stop_tokens(&self) -> &[u32] {
        &self.stop
    }

    /// Returns the stop token of demonstrations: `eos_token` of the tokenizer if it is a stop token,
    /// else the first of [`Self::stop_tokens`].
    #[must_use]
    pub fn end_token(&self) -> u32 {
        self.end
    }

    /// Returns the texts that end a completion.
    #[must_use]
    pub fn stop_texts(&self) -> &[String] {
        &self.stop_texts
    }

    /// Sets texts that end a completion. The text stays in the completion.
    ///
    /// # Errors
    /// Fails if a text is empty.
    pub fn with_stop_texts(self, texts: Vec<String>) -> Result<Self> {
        if texts.iter().any(String::is_empty) {
            return Err(InvalidSetting {
                key: "policy.stop".into(),
                got: "an empty text".into(),
                expected: "texts that end an answer".into(),
            }
            .into());
        }
        Ok(Self { stop_texts: texts, ..self })
    }

    /// Returns true if the last of these tokens ends a completion: it is a stop token, or completes a
    /// stop text.
    ///
    /// # Errors
    /// Fails as [`Self::decode`].
    pub fn ends(&self, tokens: &[u32]) -> Result<bool> {
        let Some((last, before)) = tokens.split_last() else { return Ok(false) };
        if self.stop.contains(last) {
            return Ok(true);
        }
        for stop in &self.stop_texts {
            // A token has at least one byte, except for special tokens and the few that a decoder
            // joins. So the last tokens suffice.
            let window = stop.len() + SILENT_TOKENS;
            let recent = &tokens[before.len().saturating_sub(window)..];
            if self.text.decode_raw(recent)?.contains(stop) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the id of a token; see [`TextTokenizer::id`].
    #[must_use]
    pub fn id(&self, token: &str) -> Option<u32> {
        self.text.id(token)
    }

    /// Returns the highest id plus one; see [`TextTokenizer::vocab_size`].
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.text.vocab_size()
    }
}

/// Returns the id of `eos_token` in a tokenizer_config.json.
fn end_token(text: &TextTokenizer, config: &Json) -> Option<u32> {
    let token = config.get("eos_token")?;
    text.id(token.as_str().or_else(|| token.get("content")?.as_str())?)
}

/// Returns the ids that end a completion, ascending: the usual ones of the vocabulary, and those of
/// generation_config.json.
///
/// # Errors
/// Fails if generation_config.json is malformed, or there is no such token.
pub fn stop_tokens(tokenizer: &Tokenizer, folder: &Path) -> Result<Vec<u32>> {
    let generation = folder.join("generation_config.json");
    let config = if generation.exists() { read_json(&generation)? } else { Json::Null };
    let stop = find_stop_tokens(tokenizer, &config);
    if stop.is_empty() {
        return Err(PretrainedError::malformed(
            &generation,
            format!("eos_token_id, or one of {STOP_TOKENS:?} in the vocabulary"),
            "no token that could end an answer",
        ));
    }
    Ok(stop)
}

fn find_stop_tokens(tokenizer: &Tokenizer, generation: &Json) -> Vec<u32> {
    let mut stop = BTreeSet::new();
    stop.extend(STOP_TOKENS.iter().filter_map(|token| tokenizer.token_to_id(token)));
    let eos = match generation.get("eos_token_id") {
        Some(Json::Array(ids)) => ids.as_slice(),
        Some(id) => std::slice::from_ref(id),
        None => &[],
    };
    for id in eos {
        stop.extend(id.as_u64().and_then(|id| u32::try_from(id).ok()));
    }
    stop.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{byte_level_json, byte_level_tokenizer};

    #[test]
    fn prompt_equals_encoded_rendered_chat() {
        let tokenizer = byte_level_tokenizer();
        let text = tokenizer.render_chat(Some("s"), "u").unwrap();
        assert_eq!(
            text,
            "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n"
        );
        let tokens = tokenizer.prompt(Some("s"), "u").unwrap();
        assert_eq!(tokens, tokenizer.encode(&text).unwrap());
        assert_eq!(tokens[0], tokenizer.id("<|im_start|>").unwrap());
    }

    #[test]
    fn stop_tokens_come_from_vocabulary_and_generation_config() {
        let tokenizer = byte_level_tokenizer();
        assert_eq!(tokenizer.stop_tokens(), [tokenizer.id("<|im_end|>").unwrap()]);
        let more = serde_json::json!({"eos_token_id": [3, 1]});
        let same: Tokenizer = byte_level_json().to_string().parse().unwrap();
        assert_eq!(find_stop_tokens(&same, &more), [1, 3, tokenizer.id("<|im_end|>").unwrap()]);
    }

    #[test]
    fn missing_file_is_named_in_error() {
        let error = ChatTokenizer::load(Path::new("/nowhere")).unwrap_err().to_string();
        assert!(error.contains("/nowhere/tokenizer.json"), "{error}");
    }
}

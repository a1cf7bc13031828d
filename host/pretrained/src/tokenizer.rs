//! The policy's tokenizer: chat → ids, and where an answer ends.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use corver_core::{Compatibility, InvalidSetting};
use serde_json::Value as Json;
use tokenizers::Tokenizer;

use crate::chat::{Chat, Switches};
use crate::error::{PretrainedError, Result};
use crate::text::{Decoded, TextTokenizer, cleans_up, read_json, read_tokenizer};

/// Tokens that end an answer, wherever the vocabulary has them (the paper's evaluation).
const STOP_TOKENS: [&str; 3] = ["<|im_end|>", "<|endoftext|>", "<|eot_id|>"];

/// Tokens without text of their own that a stop text may have in it.
const SILENT_TOKENS: usize = 8;

/// A tokenizer with its chat template and stop tokens.
#[derive(Debug)]
pub struct ChatTokenizer {
    text: TextTokenizer,
    chat: Chat,
    stop: Vec<u32>,
    /// The one that ends what a chat has written.
    end: u32,
    stop_texts: Vec<String>,
}

impl ChatTokenizer {
    /// Reads tokenizer.json, tokenizer_config.json, chat_template.jinja and generation_config.json
    /// of a Hugging Face folder; the last two may be absent. This process renders the chat
    /// template, which has no bound on memory: for folders that are trusted.
    ///
    /// # Errors
    /// A file that is missing or malformed, no chat template, or no stop token at all.
    pub fn load(folder: &Path) -> Result<Self> {
        Self::read(folder, None, Switches::new())
    }

    /// As [`Self::load`]; a process of its own renders the chat template, within 1 GiB of memory
    /// and 5 s for a prompt. `program` starts it, and it calls [`crate::render_as_child`]. The
    /// template sees `switches` by their names.
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
        let chat = Chat::find(folder, &config, renderer, switches)?;
        let text = TextTokenizer::new(tokenizer, cleans_up(&config));
        let end = end_token(&text, &config).filter(|end| stop.contains(end)).unwrap_or(stop[0]);
        Ok(Self { text, chat, stop, end, stop_texts: Vec::new() })
    }

    /// The ids of a chat up to where the assistant's words begin; `system` as the template places
    /// it.
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

    /// [`TextTokenizer::encode`].
    ///
    /// # Errors
    /// As there.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.text.encode(text)
    }

    /// [`TextTokenizer::decode`].
    ///
    /// # Errors
    /// As there.
    pub fn decode(&self, tokens: &[u32]) -> Result<String> {
        self.text.decode(tokens)
    }

    /// [`TextTokenizer::decode_with_spans`].
    ///
    /// # Errors
    /// As there.
    pub fn decode_with_spans(&self, tokens: &[u32]) -> Result<Decoded> {
        self.text.decode_with_spans(tokens)
    }

    /// [`TextTokenizer::decode_as`].
    ///
    /// # Errors
    /// As there.
    pub fn decode_as(&self, tokens: &[u32], compatibility: Compatibility) -> Result<Decoded> {
        self.text.decode_as(tokens, compatibility)
    }

    /// [`TextTokenizer::token_texts`].
    ///
    /// # Errors
    /// As there.
    pub fn token_texts(&self, tokens: &[u32]) -> Result<Vec<Option<String>>> {
        self.text.token_texts(tokens)
    }

    /// Ids that end an answer, ascending.
    #[must_use]
    pub fn stop_tokens(&self) -> &[u32] {
        &self.stop
    }

    /// The id that an answer to imitate ends with: the tokenizer's own, or where that ends no
    /// answer the first of
    /// [`Self::stop_tokens`].
    #[must_use]
    pub fn end_token(&self) -> u32 {
        self.end
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
                key: "policy.stop".into(),
                got: "an empty text".into(),
                expected: "texts that end an answer".into(),
            }
            .into()),
            false => Ok(Self { stop_texts: texts, ..self }),
        }
    }

    /// Whether an answer ends with the last of these tokens: it is a stop token, or completes a
    /// stop text.
    ///
    /// # Errors
    /// As [`Self::decode`].
    pub fn ends(&self, tokens: &[u32]) -> Result<bool> {
        let Some((last, before)) = tokens.split_last() else { return Ok(false) };
        if self.stop.contains(last) {
            return Ok(true);
        }
        for stop in &self.stop_texts {
            // A token stands for a byte at least, but for special ones and the few that a decoder
            // puts together.
            let reach = stop.len() + SILENT_TOKENS;
            let recent = &tokens[before.len().saturating_sub(reach)..];
            if self.text.decode_all(recent)?.contains(stop) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// [`TextTokenizer::id`].
    #[must_use]
    pub fn id(&self, token: &str) -> Option<u32> {
        self.text.id(token)
    }

    /// [`TextTokenizer::vocab_size`].
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.text.vocab_size()
    }
}

/// `eos_token` of a tokenizer_config.json.
fn end_token(text: &TextTokenizer, config: &Json) -> Option<u32> {
    let token = config.get("eos_token")?;
    text.id(token.as_str().or_else(|| token.get("content")?.as_str())?)
}

/// Ids that end an answer, ascending: the usual ones that the vocabulary has, and those of
/// generation_config.json.
///
/// # Errors
/// A generation_config.json that is malformed, or no such token.
pub fn stop_tokens(tokenizer: &Tokenizer, folder: &Path) -> Result<Vec<u32>> {
    let generation = folder.join("generation_config.json");
    let config = if generation.exists() { read_json(&generation)? } else { Json::Null };
    let stop = stop_tokens_of(tokenizer, &config);
    match stop.is_empty() {
        true => Err(PretrainedError::malformed(
            &generation,
            format!("eos_token_id, or one of {STOP_TOKENS:?} in the vocabulary"),
            "no token that could end an answer",
        )),
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
        assert_eq!(stop_tokens_of(&same, &more), [1, 3, tokenizer.id("<|im_end|>").unwrap()]);
    }

    #[test]
    fn missing_file_is_named_in_error() {
        let error = ChatTokenizer::load(Path::new("/nowhere")).unwrap_err().to_string();
        assert!(error.contains("/nowhere/tokenizer.json"), "{error}");
    }
}

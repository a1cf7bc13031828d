//! The policy's tokenizer: chat → token ids, and the stop condition.

use std::path::Path;
use std::process::Command;

use corver_core::{Compatibility, InvalidSetting};

use crate::chat::{ChatTemplate, Switches};
use crate::clean_up::CleanUp;
use crate::error::{PretrainedError, Result};
use crate::json::read_json_if_exists;
use crate::stop::StopTokens;
use crate::text::{Decoded, TextTokenizer, read_tokenizer};

/// Most tokens without text within a stop text.
const SILENT_TOKENS: usize = 8;

/// A tokenizer with its chat template and stop tokens.
#[derive(Debug)]
pub struct ChatTokenizer {
    text: TextTokenizer,
    chat: ChatTemplate,
    stop: StopTokens,
    stop_texts: Vec<String>,
}

impl ChatTokenizer {
    /// Reads tokenizer.json of a Hugging Face folder, its chat template, and its special tokens
    /// ([`StopTokens::read`]).
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
        let config = read_json_if_exists(&folder.join("tokenizer_config.json"))?;
        let stop = StopTokens::read(&tokenizer, folder)?;
        let chat = ChatTemplate::find(folder, &config, renderer, switches)?;
        let text = TextTokenizer::new(tokenizer, CleanUp::read(&config));
        Ok(Self { text, chat, stop, stop_texts: Vec::new() })
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
        &self.stop.ids
    }

    /// Returns the stop token of demonstrations.
    #[must_use]
    pub fn end_token(&self) -> u32 {
        self.stop.end
    }

    /// Returns the texts that end a completion.
    #[must_use]
    pub fn stop_texts(&self) -> &[String] {
        &self.stop_texts
    }

    /// Sets texts that end a completion, special tokens included. The text stays in the completion,
    /// unless it is a special token.
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
        if self.stop.ids.contains(last) {
            return Ok(true);
        }
        for stop in &self.stop_texts {
            // A token has at least one byte, except for the few that a decoder joins. So the last
            // tokens suffice.
            let window = stop.len() + SILENT_TOKENS;
            let recent = &tokens[before.len().saturating_sub(window)..];
            if self.text.decode_all(recent)?.contains(stop) {
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

    /// Checks that a model has every token; see [`TextTokenizer::check_vocabulary`].
    ///
    /// # Errors
    /// Fails as [`TextTokenizer::check_vocabulary`], or if the model lacks the token that ends a
    /// demonstration.
    pub fn check_vocabulary(&self, rows: usize) -> Result<()> {
        self.text.check_vocabulary(rows)?;
        if self.stop.end as usize >= rows {
            return Err(PretrainedError::InvalidModel(format!(
                "the token that ends an answer has the id {}, and the model's embedding has {rows} \
                 rows; set `eos_token_id` in generation_config.json to a token of the model",
                self.stop.end
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{byte_level_json, byte_level_tokenizer, load};

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
    fn special_token_can_be_a_stop_text() {
        let start = byte_level_tokenizer().id("<|im_start|>").unwrap();
        let tokenizer = load(&byte_level_json());
        let tokenizer = tokenizer.with_stop_texts(vec!["b<|im_start|>".into()]).unwrap();
        let tokens = [tokenizer.encode("ab").unwrap(), vec![start]].concat();
        assert!(tokenizer.ends(&tokens).unwrap());
        assert!(!tokenizer.ends(&tokens[1..2]).unwrap());
    }

    #[test]
    fn missing_file_is_named_in_error() {
        let error = ChatTokenizer::load(Path::new("/nowhere")).unwrap_err().to_string();
        assert!(error.contains("/nowhere/tokenizer.json"), "{error}");
    }
}

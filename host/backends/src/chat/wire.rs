//! The part of the chat completions API's JSON that this crate uses.

use corver_core::{ChatPrompt, Message, Usage};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize)]
pub(crate) struct CompletionRequest<'a> {
    model: &'a str,
    messages: &'a [Message],
    temperature: f32,
    /// Omitted if it has no effect: not every endpoint knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f32>,
    max_tokens: u32,
    /// Omitted if not set: not every endpoint knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u32>,
}

impl<'a> CompletionRequest<'a> {
    pub(crate) fn new(model: &'a str, prompt: &'a ChatPrompt) -> Self {
        let ChatPrompt { messages, temperature, top_p, max_tokens, seed } = prompt;
        let top_p = Some(*top_p).filter(|&mass| mass < 1.0);
        Self {
            model,
            messages,
            temperature: *temperature,
            top_p,
            max_tokens: *max_tokens,
            seed: *seed,
        }
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct CompletionResponse {
    pub(crate) choices: Vec<CompletionChoice>,
    pub(crate) usage: Option<Usage>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct CompletionChoice {
    pub(crate) message: ChoiceMessage,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ChoiceMessage {
    /// `None` (`null`) if the model refuses.
    pub(crate) content: Option<String>,
}

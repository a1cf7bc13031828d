//! The JSON of the chat completions API, as much as is used of it.

use corver_core::{ChatPrompt, Message, Usage};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize)]
pub(crate) struct Request<'a> {
    model: &'a str,
    messages: &'a [Message],
    temperature: f32,
    /// Left out where it says nothing: not every endpoint knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f32>,
    max_tokens: u32,
    /// As `top_p`.
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u32>,
}

impl<'a> Request<'a> {
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
pub(crate) struct Completion {
    pub(crate) choices: Vec<Choice>,
    pub(crate) usage: Option<Usage>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Choice {
    pub(crate) message: Content,
}

/// `null` where a model refuses.
#[derive(Debug, Deserialize)]
pub(crate) struct Content {
    pub(crate) content: Option<String>,
}

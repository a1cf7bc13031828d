//! The part of the chat completions API's JSON that this crate uses.

use corver_core::{ChatPrompt, Message, Usage};
use corver_settings::{ChatSettings, LengthField};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

#[derive(Debug, Serialize)]
pub(crate) struct CompletionRequest<'a> {
    model: &'a str,
    messages: &'a [Message],
    /// Omitted if `extra` has it, as are `top_p` and `seed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    /// Omitted if it has no effect: not every endpoint knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    /// Omitted if not set: not every endpoint knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u32>,
    #[serde(flatten)]
    extra: &'a Map<String, Value>,
}

/// Fields of a request that `extra` may not replace.
pub(crate) const OWN_FIELDS: [&str; 4] =
    ["model", "messages", "max_tokens", "max_completion_tokens"];

impl<'a> CompletionRequest<'a> {
    pub(crate) fn new(model: &'a str, prompt: &'a ChatPrompt, settings: &'a ChatSettings) -> Self {
        let ChatPrompt { messages, temperature, top_p, max_tokens, seed } = prompt;
        let extra = &settings.extra;
        let length = Some(max_tokens.saturating_add(settings.reasoning_tokens));
        let is_newer = settings.length_field == LengthField::MaxCompletionTokens;
        Self {
            model,
            messages,
            temperature: Some(*temperature).filter(|_| !extra.contains_key("temperature")),
            top_p: Some(*top_p).filter(|&mass| mass < 1.0 && !extra.contains_key("top_p")),
            max_tokens: length.filter(|_| !is_newer),
            max_completion_tokens: length.filter(|_| is_newer),
            seed: seed.filter(|_| !extra.contains_key("seed")),
            extra,
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
    /// Reason why the reply ended, such as `stop` or `length`.
    pub(crate) finish_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ChoiceMessage {
    /// `None` (`null`) if the model refuses.
    pub(crate) content: Option<MessageContent>,
}

/// Content of a reply.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum MessageContent {
    Text(String),
    /// Parts, of which a thinking model's reasoning is one (Mistral).
    Parts(Vec<ContentPart>),
}

#[derive(Debug, Deserialize)]
pub(crate) struct ContentPart {
    /// `None` for reasoning and other parts that are no text.
    text: Option<String>,
}

impl MessageContent {
    /// Returns the text of the content, without other parts.
    pub(crate) fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Parts(parts) => parts.into_iter().filter_map(|part| part.text).collect(),
        }
    }
}

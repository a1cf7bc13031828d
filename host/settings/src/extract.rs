//! Section `extract`: the triplet extractor.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use smart_default::SmartDefault;

use crate::run::Device;

/// Model, prompt and bounds of the triplet extractor.
#[derive(Debug, Clone, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ExtractSection {
    /// Source of triplets. `names` is not in the paper, and suits rules that do not read the relation.
    pub kind: ExtractKind,
    /// Hugging Face folder, the name of a model that was downloaded, a folder with an exported
    /// graph, or `demo`.
    #[schemars(length(min = 1))]
    pub model: Option<String>,
    /// Text file with the prompt, at most 1 MiB, which has `{sentence}` in place of the sentence. A
    /// line break at its end is left out. Not set: the folder's own.
    #[schemars(length(min = 1))]
    pub prompt: Option<PathBuf>,
    /// Sends the prompt as a user message through the model's chat template, if it has one.
    #[default = true]
    pub chat: bool,
    /// Variables of the model's chat template, such as `{ enable_thinking = false }`. They need
    /// `prompt` and `chat`.
    pub chat_variables: Map<String, Value>,
    /// Grammar of the extractor's replies.
    pub grammar: ReplyGrammar,
    /// Tokens that end a reply, as the tokenizer spells them. Not set: the model's own.
    #[schemars(length(min = 1))]
    pub stop: Option<Vec<String>>,
    /// Longest reply, in tokens. Not set: the folder's own, or 256 (the paper's).
    #[schemars(range(min = 1, max = 100_000))]
    pub max_new_tokens: Option<usize>,
    /// Sentences decoded together, at most. Not set: the folder's own, or 256 for a Hugging Face
    /// folder on a GPU, or 32 (the paper's).
    #[schemars(range(min = 1, max = 100_000))]
    pub batch_size: Option<usize>,
    /// Longest sentence, in tokens; a longer one has no triplets. Not set: the folder's own, or
    /// 512.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_sentence_tokens: Option<usize>,
    /// Device of the extractor: `auto` (the GPU, if there is one and ONNX Runtime is built for CUDA),
    /// `cpu`, `cuda` or `cuda:N`.
    #[schemars(with = "String")]
    pub device: Device,
}

/// Source of triplets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ExtractKind {
    /// A language model.
    #[default]
    Model,
    /// Each name, title and number of a sentence with its first one. No other setting of this section
    /// is read.
    Names,
}

/// Grammar of an extractor's replies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReplyGrammar {
    /// Finds the list in text around it, with any quotes, as lists, tuples or objects.
    #[default]
    Tolerant,
    /// The published code's: one list, and nothing around it.
    Reference,
}

//! Section `backends`: capabilities of rules in addition to counts.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use smart_default::SmartDefault;

use crate::run::Device;
use crate::text::{TextOrTexts, one_or_many};

/// Capabilities of rules in addition to counts. Each is granted by naming its model or index; `demo`
/// is the demo's world.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BackendsSection {
    /// Entailment of one text by another; `model` grants it.
    pub nli: NliSettings,
    /// Replies of a chat model; `endpoint` and `model` grant it.
    pub chat: ChatSettings,
    /// Search for passages of the corpus; `index` grants it.
    pub passages: PassageSettings,
    /// Answers of the demo's world.
    pub demo: DemoSection,
    /// Prices of counts, NLI and passages, for the cost of a run; those of a chat model are
    /// `chat.prices`.
    pub price: PriceSection,
}

/// Model for natural language inference.
#[derive(Debug, Clone, PartialEq, Eq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NliSettings {
    /// Folder of HHEM-2.1 or of a DeBERTa-v3 for MNLI, the name of a model that was downloaded, or
    /// `demo`.
    #[schemars(length(min = 1))]
    pub model: Option<String>,
    /// Device of the model: `auto`, `cpu`, `cuda` or `cuda:N`.
    #[schemars(with = "String")]
    pub device: Device,
    /// Pairs run together, at most.
    #[default = 32]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub batch_size: usize,
    /// Tokens run together, padding included; a longer pair is run alone. Not set: 1,024 on a
    /// CPU, whose caches do not hold more, and 16,384 on a GPU.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub max_batch_tokens: Option<usize>,
    /// Longest pair, in tokens; the longer text of a longer pair loses its end. Not set: 512 for
    /// DeBERTa, as its tokenizer has it, and 4,096 for HHEM, whose published code has no bound.
    #[schemars(range(min = 1, max = 65_536))]
    pub max_tokens: Option<usize>,
}

/// Chat model behind an OpenAI-compatible API. Length and randomness of a reply belong to each
/// prompt.
#[derive(Debug, Clone, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ChatSettings {
    /// Base of the API, such as `https://api.openai.com/v1`; `/chat/completions` is added. `demo`
    /// is the demo's world.
    #[schemars(length(min = 1))]
    pub endpoint: Option<String>,
    /// The endpoint's name for the model.
    #[schemars(length(min = 1))]
    pub model: Option<String>,
    /// File with the key, which is sent to https:// addresses and to this machine only. Not set:
    /// the environment variable `key_variable`.
    pub key_file: Option<PathBuf>,
    /// Environment variable with the key. Not set: `OPENAI_API_KEY` for OpenAI's own endpoint, and
    /// no key for others.
    pub key_variable: Option<String>,
    /// Largest number of concurrent requests.
    #[default = 4]
    #[schemars(range(min = 1, max = 10_000))]
    pub connections: usize,
    /// Rate limit, in requests per second. Not set: no limit.
    #[schemars(range(min = 0.001, max = 1e6))]
    pub requests_per_second: Option<f64>,
    /// Time limit of one attempt, in seconds.
    #[default = 60.0]
    #[schemars(range(min = 0.001, max = 86_400.0))]
    pub timeout_s: f64,
    /// Time limit of all retries of a request, in seconds.
    #[default = 180.0]
    #[schemars(range(min = 0.001, max = 8_640_000.0))]
    pub retry_timeout_s: f64,
    /// Tokens for the reasoning of a thinking model, in addition to those of a prompt's reply.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub reasoning_tokens: u32,
    /// Field of a request that has the largest length of a reply. OpenAI's reasoning models take
    /// `max_completion_tokens` alone.
    pub length_field: LengthField,
    /// Further fields of each request, such as `reasoning_effort = "low"` or `temperature = 1`. They
    /// replace those of a prompt, but not `model`, `messages` and the length.
    pub extra: Map<String, Value>,
    /// Prices of the tokens.
    pub prices: ChatPrices,
    /// Budget in the currency of `prices`, cached replies included: no request starts beyond it.
    /// Needs `prices`. Not set: no budget.
    #[schemars(range(min = 0.0, max = 1e12))]
    pub max_cost: Option<f64>,
}

/// Field of a request that has the largest length of a reply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LengthField {
    /// The older name, which all endpoints but OpenAI's newest know.
    #[default]
    MaxTokens,
    /// The newer name.
    MaxCompletionTokens,
}

/// Prices of a million tokens, in any currency.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ChatPrices {
    /// Price of a million tokens of prompts.
    #[schemars(range(min = 0.0, max = 1e9))]
    pub prompt: f64,
    /// Price of a million tokens of replies.
    #[schemars(range(min = 0.0, max = 1e9))]
    pub completion: f64,
}

/// Passages that rules search.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PassageSettings {
    /// Index folders whose passages `corver-host index passages` built, or `demo`; several are
    /// searched as one.
    #[serde(deserialize_with = "one_or_many")]
    #[schemars(with = "TextOrTexts")]
    pub index: Vec<PathBuf>,
    /// Folder of the passages (`--dir`). Not set: next to each index.
    pub dir: Option<PathBuf>,
}

/// Answers of the demo's world.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DemoSection {
    /// Share of the NLI and chat requests with a wrong reply.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub error_rate: f64,
}

/// Prices of a thousand calls, in any currency.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PriceSection {
    /// Price of a thousand counts.
    #[schemars(range(min = 0.0, max = 1e9))]
    pub count: f64,
    /// Price of a thousand pairs of texts for the NLI model.
    #[schemars(range(min = 0.0, max = 1e9))]
    pub nli: f64,
    /// Price of a thousand searches for passages.
    #[schemars(range(min = 0.0, max = 1e9))]
    pub passages: f64,
}

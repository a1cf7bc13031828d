//! Section `policy`: the model that is trained.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use smart_default::SmartDefault;

use crate::text::{TextOrTexts, one_or_many};

/// System prompt of the paper's training rollouts (App. prompt).
pub const PAPER_TRAINING_PROMPT: &str = "
Answer using this exact format:
<think>brief reasoning</think>
<answer>direct answer</answer>

Rules:
- Keep the entire response under 1000 tokens.
- In <think> AND <answer>, always use full entity names; never pronouns (he, she, it, they, this, \
that, them, his, her, its, their). Repeat the entity name each sentence.
- Do not loop or repeat the same point or phrase.
- If you genuinely do not know, reply exactly: <think>unknown</think><answer>I don't know</answer>";

/// Model, tokenizer and prompt of the policy.
#[derive(Debug, Clone, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PolicySection {
    /// Hugging Face folder, the name of a model that was downloaded (`Qwen/Qwen3-8B`), or `demo`.
    #[schemars(length(min = 1))]
    pub model: Option<String>,
    /// Folder of an adapter or a checkpoint that training continues from; it is then the reference,
    /// too. Not set: a fresh adapter.
    #[schemars(length(min = 1))]
    pub adapter: Option<PathBuf>,
    /// Variables of the model's chat template, such as `{ enable_thinking = false }`.
    pub chat: Map<String, Value>,
    /// Texts that end an answer, in addition to the model's stop tokens. The text stays in the
    /// answer.
    #[serde(deserialize_with = "one_or_many")]
    #[schemars(with = "TextOrTexts")]
    pub stop: Vec<String>,
    /// System prompt of training rollouts and of `filter`; an empty text sends none. Default: the
    /// paper's.
    #[default(PAPER_TRAINING_PROMPT.into())]
    pub system_prompt: String,
    /// Precision of the base model's weights. A CPU with AMX, or one of AMD with AVX512-BF16, is
    /// faster in bf16; one of Intel without AMX is slower.
    pub precision: Precision,
    /// Completions decoded together, at most; a run lowers it to the number that fits its device.
    #[default = 512]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_rows: usize,
}

/// Precision of the base model's weights; adapters and optimiser state are always f32.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// bf16 on a GPU, f32 on the CPU.
    #[default]
    Auto,
    /// 32-bit floats on every device.
    F32,
    /// bfloat16 on every device.
    Bf16,
}

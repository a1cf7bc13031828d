//! Section `eval`: prompts and sampling of evaluation.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::rollout::{MAX_TEMPERATURE, MIN_TOP_P, Sampling};

/// System prompt of the paper's evaluation (App. prompt).
pub const PAPER_EVALUATION_PROMPT: &str = "
Answer using this exact format:
<think>brief reasoning</think>
<answer>direct answer</answer>

If you genuinely do not know, reply exactly: <think>unknown</think><answer>I don't know</answer>";

/// The paper's anti-loop line, which a trained policy's prompt ends with.
pub const PAPER_TRAINED_SUFFIX: &str = "\nDo not loop or repeat the same point or phrase.";

/// Prompts and sampling of evaluation; the defaults are the paper's.
#[derive(Debug, Clone, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EvalSection {
    /// System prompt; an empty text sends none. Default: `policy.system_prompt` if that is set, or
    /// else the paper's.
    #[default(PAPER_EVALUATION_PROMPT.into())]
    pub system_prompt: String,
    /// Text added to it if an adapter answers. Default: the paper's anti-loop line.
    #[default(PAPER_TRAINED_SUFFIX.into())]
    pub trained_suffix: String,
    /// Sampling of the answers.
    pub answers: EvaluateSettings,
}

/// Sampling of the answers; the defaults are the paper's.
#[derive(Debug, Clone, Copy, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EvaluateSettings {
    /// Longest answer, in tokens.
    #[default = 1000]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_completion_length: usize,
    /// Number of answers decoded together.
    #[default = 64]
    #[schemars(range(min = 1, max = 100_000))]
    pub batch: usize,
    /// Answers per question: 1 decodes greedily, more are sampled.
    #[default = 1]
    #[schemars(range(min = 1, max = 10_000))]
    pub samples: usize,
    /// Softmax temperature of sampled answers.
    #[default = 0.7]
    #[schemars(range(min = 0.0, max = MAX_TEMPERATURE))]
    pub temperature: f64,
    /// Nucleus mass of sampled answers; 1 samples from all tokens.
    #[default = 0.95]
    #[schemars(range(min = MIN_TOP_P, max = 1.0))]
    pub top_p: f64,
}

impl EvaluateSettings {
    /// Returns the sampling of one answer to each question, or of several.
    #[must_use]
    pub fn sampling(&self) -> Sampling {
        let greedy = Sampling::greedy(self.max_completion_length);
        if self.samples == 1 {
            return greedy;
        }
        Sampling {
            num_generations: self.samples,
            temperature: self.temperature,
            top_p: self.top_p,
            ..greedy
        }
    }
}

//! Section `rollout`: sampling of completions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// Highest temperature of any sampling. Chat APIs have the same bound.
pub const MAX_TEMPERATURE: f64 = 2.0;
/// Smallest nucleus mass of any sampling.
pub const MIN_TOP_P: f64 = 1e-6;

/// Returns true if this is a valid temperature.
#[must_use]
pub fn is_temperature(temperature: f64) -> bool {
    (0.0..=MAX_TEMPERATURE).contains(&temperature)
}

/// Returns true if this is a valid nucleus mass.
#[must_use]
pub fn is_top_p(top_p: f64) -> bool {
    (MIN_TOP_P..=1.0).contains(&top_p)
}

/// Sampling of completions; the defaults are the paper's (App. hyper-parameters).
#[derive(Debug, Clone, Copy, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Sampling {
    /// G, completions per prompt.
    #[default = 16]
    #[schemars(range(min = 1, max = 100_000))]
    pub num_generations: usize,
    /// Longest completion, in tokens; a longer one is cut off.
    #[default = 1024]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_completion_length: usize,
    /// Softmax temperature; 0 decodes greedily.
    #[default = 1.0]
    #[schemars(range(min = 0.0, max = MAX_TEMPERATURE))]
    pub temperature: f64,
    /// Nucleus mass; 1 samples from all tokens.
    #[default = 1.0]
    #[schemars(range(min = MIN_TOP_P, max = 1.0))]
    pub top_p: f64,
    /// Number of most probable tokens to sample from. Not set: all.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub top_k: Option<usize>,
    /// Longest prompt, in tokens, chat template included. Evaluation has no bound.
    #[default(Some(256))]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_prompt_length: Option<usize>,
    /// Treatment of prompts above `max_prompt_length`.
    pub long_prompts: LongPrompts,
}

impl Sampling {
    /// Returns the sampling of one most probable completion per prompt, of any length.
    #[must_use]
    pub fn greedy(max_completion_length: usize) -> Self {
        Self {
            num_generations: 1,
            max_completion_length,
            temperature: 0.0,
            max_prompt_length: None,
            ..Self::default()
        }
    }
}

/// Treatment of a prompt that is longer than [`Sampling::max_prompt_length`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LongPrompts {
    /// An error that names the question.
    #[default]
    Reject,
    /// The first tokens are left out, as in TRL; a warning names the first such question.
    Truncate,
}

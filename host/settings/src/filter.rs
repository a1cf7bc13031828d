//! Section `filter`: the learning-zone self-filter.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::rollout::{MAX_TEMPERATURE, MIN_TOP_P, Sampling};

/// Self-filter; the defaults are the paper's (App. self-filter).
#[derive(Debug, Clone, Copy, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FilterSettings {
    /// Number of samples per question.
    #[default = 16]
    #[schemars(range(min = 1, max = 100_000))]
    pub num_generations: usize,
    /// Longest sample, in tokens; a longer one is cut off.
    #[default = 512]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_completion_length: usize,
    /// Softmax temperature of the samples.
    #[default = 0.7]
    #[schemars(range(min = 0.0, max = MAX_TEMPERATURE))]
    pub temperature: f64,
    /// Nucleus mass of the samples; 1 samples from all tokens.
    #[default = 0.95]
    #[schemars(range(min = MIN_TOP_P, max = 1.0))]
    pub top_p: f64,
    /// Smallest number of correct answers that selects a question.
    #[default = 1]
    #[schemars(range(min = 0, max = 100_000))]
    pub min_correct: usize,
    /// Largest number of correct answers that selects a question. Not set: one less than the
    /// samples.
    #[schemars(range(min = 0, max = 100_000))]
    pub max_correct: Option<usize>,
    /// Number of questions with only correct answers that are selected as anchors.
    #[default = 0]
    #[schemars(range(min = 0, max = 9_000_000_000_000_000_u64))]
    pub anchors: usize,
    /// Questions sampled together. The samples depend on it.
    #[default = 32]
    #[schemars(range(min = 1, max = 100_000))]
    pub batch: usize,
}

impl FilterSettings {
    /// True if a question with this number of correct answers is selected.
    #[must_use]
    pub fn keeps(&self, num_correct: usize) -> bool {
        (self.min_correct..=self.most_correct()).contains(&num_correct)
    }

    /// Returns the largest number of correct answers that selects a question.
    #[must_use]
    pub fn most_correct(&self) -> usize {
        let most = self.max_correct.unwrap_or(self.num_generations.saturating_sub(1));
        most.min(self.num_generations)
    }

    /// Returns the sampling of the filter; the rest is as in `rollout`.
    #[must_use]
    pub fn sampling(&self, rollout: Sampling) -> Sampling {
        Sampling {
            num_generations: self.num_generations,
            max_completion_length: self.max_completion_length,
            temperature: self.temperature,
            top_p: self.top_p,
            ..rollout
        }
    }
}

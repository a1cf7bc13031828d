//! Section `sft`: the cold start on demonstrations.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// Fine-tuning on demonstrations. Adapters, optimiser and warm-up are those of `update`.
#[derive(Debug, Clone, Copy, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SftSettings {
    /// Passes over the demonstrations.
    #[default = 1]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub epochs: usize,
    /// Demonstrations of one step.
    #[default = 32]
    #[schemars(range(min = 1, max = 100_000))]
    pub per_step: usize,
    /// Peak learning rate. The paper names none; the default is the usual one for adapters.
    #[default = 2e-4]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub learning_rate: f64,
    /// Longest demonstration with its prompt, in tokens; a longer one is refused.
    #[default = 1024]
    #[schemars(range(min = 2, max = 1_000_000))]
    pub max_length: usize,
}

impl SftSettings {
    /// Returns the optimiser steps for this number of demonstrations.
    #[must_use]
    pub fn steps(&self, demonstrations: usize) -> usize {
        (demonstrations * self.epochs).div_ceil(self.per_step.max(1))
    }
}

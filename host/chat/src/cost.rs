//! What replies cost.

use serde::{Deserialize, Serialize};

use crate::wire::Usage;

/// In any currency, for a million tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Prices {
    /// Tokens of prompts.
    pub prompt: f64,
    /// Tokens of replies.
    pub completion: f64,
}

/// What was asked and paid for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Spent {
    /// Replies that were paid for.
    pub requests: u64,
    /// Replies that were known from before.
    pub known: u64,
    /// Tokens of prompts that were paid for.
    pub prompt_tokens: u64,
    /// Tokens of replies that were paid for.
    pub completion_tokens: u64,
}

impl Spent {
    pub(crate) fn add(&mut self, usage: Usage) {
        self.requests += 1;
        self.prompt_tokens += usage.prompt_tokens;
        self.completion_tokens += usage.completion_tokens;
    }

    /// In the currency of the prices.
    #[must_use]
    pub fn cost(&self, prices: Prices) -> f64 {
        (self.prompt_tokens as f64 * prices.prompt + self.completion_tokens as f64 * prices.completion) / 1e6
    }
}

//! What replies cost.

use corver_core::Usage;
use corver_settings::ChatPrices;
use serde::Serialize;

/// Replies that were paid for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Paid {
    /// How many.
    pub replies: u64,
    /// Tokens of their prompts.
    pub prompt_tokens: u64,
    /// Their own tokens.
    pub completion_tokens: u64,
}

/// What the replies of a job took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Spent {
    /// Those that this job asked for.
    pub now: Paid,
    /// Those that were in the cache, and what [`corver_core::ChatModel::add_prior_usage`] was told.
    pub before: Paid,
}

impl Paid {
    pub(crate) fn add(&mut self, usage: Usage) {
        let Usage { prompt_tokens, completion_tokens } = usage;
        self.replies += 1;
        self.prompt_tokens += prompt_tokens;
        self.completion_tokens += completion_tokens;
    }

    /// In the currency of the prices.
    #[must_use]
    pub fn cost(&self, prices: ChatPrices) -> f64 {
        (self.prompt_tokens as f64 * prices.prompt
            + self.completion_tokens as f64 * prices.completion)
            / 1e6
    }
}

impl Spent {
    /// Both, in the currency of the prices.
    #[must_use]
    pub fn cost(&self, prices: ChatPrices) -> f64 {
        self.now.cost(prices) + self.before.cost(prices)
    }
}

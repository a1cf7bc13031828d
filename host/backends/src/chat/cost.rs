//! The cost of replies.

use corver_core::Usage;
use corver_settings::ChatPrices;
use serde::Serialize;

/// Number and tokens of some replies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ReplyTotals {
    /// Number of replies in total.
    pub replies: u64,
    /// Tokens of the prompts.
    pub prompt_tokens: u64,
    /// Tokens of the replies.
    pub completion_tokens: u64,
}

/// Replies that a job used, by whether it requested them itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Spending {
    /// Replies that this job requested.
    pub requested: ReplyTotals,
    /// Replies from the cache, and the usage of earlier processes of the same run.
    pub cached: ReplyTotals,
}

impl ReplyTotals {
    pub(crate) fn add(&mut self, usage: Usage) {
        let Usage { prompt_tokens, completion_tokens } = usage;
        self.replies += 1;
        // An endpoint may report any number.
        self.prompt_tokens = self.prompt_tokens.saturating_add(prompt_tokens);
        self.completion_tokens = self.completion_tokens.saturating_add(completion_tokens);
    }

    /// Returns the cost, in the currency of the prices.
    #[must_use]
    pub fn cost(&self, prices: ChatPrices) -> f64 {
        (self.prompt_tokens as f64 * prices.prompt
            + self.completion_tokens as f64 * prices.completion)
            / 1e6
    }
}

impl Spending {
    /// Returns the cost of all replies, cached ones included, in the currency of the prices.
    #[must_use]
    pub fn cost(&self, prices: ChatPrices) -> f64 {
        self.requested.cost(prices) + self.cached.cost(prices)
    }
}

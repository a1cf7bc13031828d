//! The cost of the requests of rules: their number in a step, times the prices of the settings.

use corver_settings::{ChatPrices, PriceSection};
use serde::{Deserialize, Serialize};

/// Mean number of requests of the rules in a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct QueryCounts {
    /// Queries for counts.
    pub count: f64,
    /// Pairs of texts for the NLI model.
    pub nli: f64,
    /// Prompts to the chat model.
    pub chat: f64,
    /// Searches for passages of the corpus.
    pub passages: f64,
    /// Tokens of prompts to the chat model; a repeated prompt counts once in a run.
    pub prompt_tokens: f64,
    /// Tokens of the chat model's replies.
    pub completion_tokens: f64,
}

impl QueryCounts {
    /// Returns the cost in the currency of the prices.
    #[must_use]
    pub fn cost(&self, prices: &PriceSection, chat: &ChatPrices) -> f64 {
        let Self { count, nli, passages, prompt_tokens, completion_tokens, .. } = self;
        (count * prices.count + nli * prices.nli + passages * prices.passages) / 1e3
            + (prompt_tokens * chat.prompt + completion_tokens * chat.completion) / 1e6
    }

    /// Reads the numbers from the metrics, whose values `metric` returns by name.
    pub(super) fn from_metrics(metric: impl Fn(&str) -> f64) -> Self {
        Self {
            count: metric("backends/count"),
            nli: metric("backends/nli"),
            chat: metric("backends/chat"),
            passages: metric("backends/passages"),
            prompt_tokens: metric("backends/prompt_tokens"),
            completion_tokens: metric("backends/completion_tokens"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_sums_request_and_token_prices() {
        let queries = QueryCounts {
            count: 500.0,
            nli: 40.0,
            chat: 9.0,
            passages: 10.0,
            prompt_tokens: 2e5,
            completion_tokens: 1e4,
        };
        // By hand: 0.05 + 0.02 + 0.02 + 0.6 + 0.1; a chat costs its tokens.
        let prices = PriceSection { count: 0.1, nli: 0.5, passages: 2.0 };
        let chat = ChatPrices { prompt: 3.0, completion: 10.0 };
        assert!((queries.cost(&prices, &chat) - 0.79).abs() < 1e-12);
        assert_eq!(queries.cost(&PriceSection::default(), &ChatPrices::default()), 0.0);
    }
}

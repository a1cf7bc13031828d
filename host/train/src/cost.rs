//! The cost of the requests of rules: their number in a step, times the prices of the settings.

use serde::{Deserialize, Serialize};

/// Prices of requests, in any currency; 0 by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Prices {
    /// Price of a thousand counts.
    pub count: f64,
    /// Price of a thousand pairs of texts for the NLI model.
    pub nli: f64,
    /// Price of a thousand searches for passages.
    pub passages: f64,
    /// Price of a million tokens of prompts to the chat model.
    pub prompt: f64,
    /// Price of a million tokens of the chat model's replies.
    pub completion: f64,
}

impl Prices {
    /// Returns true if no price is negative or infinite.
    #[must_use]
    pub fn are_valid(&self) -> bool {
        let Self { count, nli, passages, prompt, completion } = self;
        [count, nli, passages, prompt, completion]
            .into_iter()
            .all(|price| price.is_finite() && *price >= 0.0)
    }
}

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
    pub fn cost(&self, prices: &Prices) -> f64 {
        let Self { count, nli, passages, prompt_tokens, completion_tokens, .. } = self;
        (count * prices.count + nli * prices.nli + passages * prices.passages) / 1e3
            + (prompt_tokens * prices.prompt + completion_tokens * prices.completion) / 1e6
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

    const PRICES: Prices =
        Prices { count: 0.1, nli: 0.5, passages: 2.0, prompt: 3.0, completion: 10.0 };

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
        assert!((queries.cost(&PRICES) - 0.79).abs() < 1e-12);
        assert_eq!(queries.cost(&Prices::default()), 0.0);
    }

    #[test]
    fn negative_or_non_finite_price_is_invalid() {
        assert!(PRICES.are_valid() && Prices::default().are_valid());
        for price in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(!Prices { nli: price, ..PRICES }.are_valid(), "{price}");
        }
    }
}

//! What the questions of rules cost: how many there are in a step, and the money at stated prices.

use std::ops::Add;

use corver_core::{Tallies, Usage};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What verifiers cost, in any currency; nothing by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Prices {
    /// A thousand counts.
    pub count: f64,
    /// A thousand pairs of texts for the NLI model.
    pub nli: f64,
    /// A thousand searches for passages.
    pub passages: f64,
    /// A million tokens of prompts to the chat model.
    pub prompt: f64,
    /// A million tokens of its replies.
    pub completion: f64,
}

impl Prices {
    /// Whether money can be counted in them: none is negative or infinite.
    #[must_use]
    pub fn are_valid(&self) -> bool {
        let Self { count, nli, passages, prompt, completion } = self;
        [count, nli, passages, prompt, completion]
            .into_iter()
            .all(|price| price.is_finite() && *price >= 0.0)
    }
}

/// What rules asked in a step, on average.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// Counts.
    pub count: f64,
    /// Pairs of texts for the NLI model.
    pub nli: f64,
    /// Chats.
    pub chat: f64,
    /// Searches for passages.
    pub passages: f64,
    /// Tokens sent to the chat model, once for each prompt of a run.
    pub prompt_tokens: f64,
    /// Tokens of its replies.
    pub completion_tokens: f64,
}

impl Asked {
    /// The tokens, of a sum over steps.
    pub(super) fn usage(&self) -> Usage {
        Usage {
            prompt_tokens: self.prompt_tokens as u64,
            completion_tokens: self.completion_tokens as u64,
        }
    }

    /// Money, in the currency of the prices.
    #[must_use]
    pub fn cost(&self, prices: &Prices) -> f64 {
        let Self { count, nli, passages, prompt_tokens, completion_tokens, .. } = self;
        (count * prices.count + nli * prices.nli + passages * prices.passages) / 1e3
            + (prompt_tokens * prices.prompt + completion_tokens * prices.completion) / 1e6
    }

    /// Of a step's metrics; `None` where they are of a version that did not count questions.
    pub(super) fn of(metrics: &Map<String, Value>) -> Option<Self> {
        let number = |name: &str| metrics.get(name).and_then(Value::as_f64);
        let or_none = |name: &str| number(name).unwrap_or(0.0);
        Some(Self {
            count: number("verify/count")?,
            nli: or_none("verify/nli"),
            chat: or_none("verify/chat"),
            passages: or_none("verify/passages"),
            prompt_tokens: or_none("verify/prompt_tokens"),
            completion_tokens: or_none("verify/completion_tokens"),
        })
    }

    /// Of the sum over so many steps, the mean.
    pub(super) fn per_step(self, steps: f64) -> Self {
        Self {
            count: self.count / steps,
            nli: self.nli / steps,
            chat: self.chat / steps,
            passages: self.passages / steps,
            prompt_tokens: self.prompt_tokens / steps,
            completion_tokens: self.completion_tokens / steps,
        }
    }
}

impl Add for Asked {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            nli: self.nli + other.nli,
            chat: self.chat + other.chat,
            passages: self.passages + other.passages,
            prompt_tokens: self.prompt_tokens + other.prompt_tokens,
            completion_tokens: self.completion_tokens + other.completion_tokens,
        }
    }
}

/// A step's questions and the seconds that they took. Counts are always there, the others where
/// something was asked.
pub(super) fn record(asked: &Tallies, put: &mut impl FnMut(&str, f64) -> Option<Value>) {
    let Tallies { count, nli, chat, passages, usage: Usage { prompt_tokens, completion_tokens } } =
        asked;
    put("verify/count", count.asked as f64);
    put("seconds/count", count.seconds);
    for (kind, tally) in [("nli", nli), ("chat", chat), ("passages", passages)] {
        if tally.asked > 0 {
            put(&format!("verify/{kind}"), tally.asked as f64);
            put(&format!("seconds/{kind}"), tally.seconds);
        }
    }
    if chat.asked > 0 {
        put("verify/prompt_tokens", *prompt_tokens as f64);
        put("verify/completion_tokens", *completion_tokens as f64);
    }
}

#[cfg(test)]
mod tests {
    use corver_core::Tally;
    use serde_json::json;

    use super::*;

    const PRICES: Prices =
        Prices { count: 0.1, nli: 0.5, passages: 2.0, prompt: 3.0, completion: 10.0 };

    #[test]
    fn the_cost_is_by_a_thousand_questions_and_a_million_tokens() {
        let asked = Asked {
            count: 500.0,
            nli: 40.0,
            chat: 9.0,
            passages: 10.0,
            prompt_tokens: 2e5,
            completion_tokens: 1e4,
        };
        // By hand: 0.05 + 0.02 + 0.02 + 0.6 + 0.1; a chat costs its tokens.
        assert!((asked.cost(&PRICES) - 0.79).abs() < 1e-12);
        assert_eq!(asked.cost(&Prices::default()), 0.0);
    }

    #[test]
    fn what_a_step_asked_is_read_from_its_metrics() {
        let tally = |asked| Tally { asked, seconds: 0.5 };
        let usage = Usage { prompt_tokens: 70, completion_tokens: 7 };
        let tallies = Tallies { count: tally(0), chat: tally(3), usage, ..Tallies::default() };
        let mut line = Map::new();
        record(&tallies, &mut |name, value| line.insert(name.to_owned(), json!(value)));
        let names: Vec<&str> = line.keys().map(String::as_str).collect();
        let expected = [
            "seconds/chat",
            "seconds/count",
            "verify/chat",
            "verify/completion_tokens",
            "verify/count",
        ];
        assert_eq!(names, [&expected[..], &["verify/prompt_tokens"]].concat());
        let asked =
            Asked { chat: 3.0, prompt_tokens: 70.0, completion_tokens: 7.0, ..Asked::default() };
        assert_eq!(Asked::of(&line), Some(asked));
        line.remove("verify/count");
        assert_eq!(Asked::of(&line), None, "of an earlier version");
    }

    #[test]
    fn a_price_is_no_less_than_nothing() {
        assert!(PRICES.are_valid() && Prices::default().are_valid());
        for price in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(!Prices { nli: price, ..PRICES }.are_valid(), "{price}");
        }
    }
}

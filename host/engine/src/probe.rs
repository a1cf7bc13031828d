//! Which log-probabilities a server gives: found out by asking for the same token at two
//! temperatures.

use std::sync::atomic::AtomicBool;

use corver_core::Sampling;
use corver_http::FirstFailure;

use crate::draw::{Draw, Stop};
use crate::error::{EngineError, Result};
use crate::server::{Reply, Server, unexpected};

/// What a server's log-probabilities belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogProbs {
    /// The model's own distribution, at temperature 1 (vLLM's `raw_logprobs`, its default).
    Raw,
    /// The distribution that was drawn from: at the request's temperature (vLLM's
    /// `processed_logprobs`, SGLang's default).
    Processed,
}

impl LogProbs {
    /// Whether they are the log-probabilities of what a sampling at this temperature draws. Greedy
    /// decoding notes those of temperature 1, in either way.
    pub(crate) fn fit(self, temperature: f64) -> bool {
        self == Self::Processed || temperature == 0.0 || temperature == 1.0
    }
}

/// Alternatives asked for.
const ALTERNATIVES: usize = 5;
/// A sum of probabilities, with some rounding.
const AT_MOST: f64 = 1.01;

/// Asks the base model for one token behind `prompt`, twice.
pub(crate) fn log_probs(server: &Server, model: &str, prompt: &[u32]) -> Result<LogProbs> {
    let at = |temperature| -> Result<Vec<f64>> {
        let sampling = Sampling { temperature, ..Sampling::greedy(1) };
        let draw = Draw {
            model,
            prompt,
            number: 1,
            max_tokens: 1,
            sampling: &sampling,
            stop: Stop { tokens: &[], texts: &[] },
            seed: 1,
            alternatives: ALTERNATIVES,
        };
        let missing = || unexpected(server.url(), "no alternatives");
        match server.draw(&draw, &FirstFailure::default(), &AtomicBool::new(false))? {
            Some(Reply::Done(mut drawn)) => {
                let alternatives =
                    drawn.pop().and_then(|mut completion| completion.alternatives.pop());
                let mut alternatives =
                    alternatives.filter(|values| values.len() > 1).ok_or_else(missing)?;
                alternatives.truncate(ALTERNATIVES); // vLLM adds the drawn one
                Ok(alternatives)
            }
            Some(Reply::NotFound(message)) => {
                Err(EngineError::Refused { url: server.url().to_owned(), message })
            }
            None => Err(missing()), // it is asked alone
        }
    };
    kind_of(&at(1.0)?, &at(2.0)?).ok_or_else(|| {
        EngineError::Unusable(format!(
            "the engine {} gives numbers that are no log-probabilities: start vLLM with \
             --logprobs-mode processed_logprobs",
            server.url()
        ))
    })
}

/// From the largest log-probabilities at the temperatures 1 and 2; `None` where they are none.
fn kind_of(at_1: &[f64], at_2: &[f64]) -> Option<LogProbs> {
    let is_share = |values: &[f64]| values.iter().map(|value| value.exp()).sum::<f64>() <= AT_MOST;
    // Falling, so that this is how far the most probable token is from the least probable one that
    // is told.
    let spread = |values: &[f64]| {
        values.first().zip(values.last()).map_or(0.0, |(first, last)| first - last)
    };
    let is_processed = spread(at_2) < 0.75 * spread(at_1); // it halves, or stays
    (is_share(at_1) && is_share(at_2)).then_some(if is_processed {
        LogProbs::Processed
    } else {
        LogProbs::Raw
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_softmax(logits: &[f64], temperature: f64) -> Vec<f64> {
        let sum: f64 = logits.iter().map(|logit| (logit / temperature).exp()).sum();
        logits.iter().take(3).map(|logit| logit / temperature - sum.ln()).collect()
    }

    #[test]
    fn log_prob_kinds_are_distinguished() {
        for logits in [[4.0, 3.0, 1.0, 0.0], [30.0, 2.0, 1.0, 0.0]] {
            let (one, two) = (log_softmax(&logits, 1.0), log_softmax(&logits, 2.0));
            assert_eq!(kind_of(&one, &two), Some(LogProbs::Processed));
            assert_eq!(kind_of(&one, &one), Some(LogProbs::Raw));
            assert_eq!(kind_of(&logits, &logits), None, "logits");
        }
    }

    #[test]
    fn raw_log_probs_fit_temperatures_zero_and_one() {
        assert!(LogProbs::Raw.fit(1.0) && LogProbs::Raw.fit(0.0) && !LogProbs::Raw.fit(0.7));
        assert!(LogProbs::Processed.fit(0.7));
    }
}

//! Detects the temperature of a server's log-probabilities: it requests the same token at two
//! temperatures.

use std::sync::atomic::AtomicBool;

use corver_core::Sampling;
use corver_http::FirstFailure;

use crate::error::{EngineError, Result};
use crate::request::{SampleRequest, StopCondition};
use crate::server::{EngineServer, ServerReply, unexpected};

/// The distribution of a server's log-probabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogProbKind {
    /// The model's own distribution, at temperature 1 (vLLM's `raw_logprobs`, its default).
    Raw,
    /// The distribution that is sampled from, at the request's temperature (vLLM's
    /// `processed_logprobs`, SGLang's default).
    Processed,
}

impl LogProbKind {
    /// Returns true if they are the log-probabilities that an update needs after sampling at this
    /// temperature. After greedy decoding it needs those of temperature 1, which both kinds are.
    pub(crate) fn fits(self, temperature: f64) -> bool {
        self == Self::Processed || temperature == 0.0 || temperature == 1.0
    }
}

/// Number of alternatives in the request.
const ALTERNATIVES: usize = 5;

/// Largest sum of probabilities, with some rounding.
const MAX_SUM: f64 = 1.01;

/// Requests one token after `prompt` from the base model at the temperatures 1 and 2, and compares.
pub(crate) fn detect_log_probs(
    server: &EngineServer,
    model: &str,
    prompt: &[u32],
) -> Result<LogProbKind> {
    let at_1 = request_alternatives(server, model, prompt, 1.0)?;
    let at_2 = request_alternatives(server, model, prompt, 2.0)?;
    classify(&at_1, &at_2).ok_or_else(|| {
        EngineError::Unusable(format!(
            "the engine {} returns numbers that are not log-probabilities; start vLLM with \
             --logprobs-mode processed_logprobs",
            server.url()
        ))
    })
}

/// Returns the log-probabilities of the most probable tokens after `prompt`, descending.
fn request_alternatives(
    server: &EngineServer,
    model: &str,
    prompt: &[u32],
    temperature: f64,
) -> Result<Vec<f64>> {
    let sampling = Sampling { temperature, ..Sampling::greedy(1) };
    let request = SampleRequest {
        model,
        prompt,
        number: 1,
        max_tokens: 1,
        sampling: &sampling,
        stop: StopCondition { tokens: &[], texts: &[] },
        seed: 1,
        alternatives: ALTERNATIVES,
    };
    let reply = server.sample(&request, &FirstFailure::default(), &AtomicBool::new(false))?;
    let mut completions = match reply {
        Some(ServerReply::Done(completions)) => completions,
        Some(ServerReply::NotFound(message)) => {
            return Err(EngineError::Refused { url: server.url().to_owned(), message });
        }
        None => Vec::new(), // only other requests of a batch cause this, and there are none
    };
    match completions.pop().and_then(|mut completion| completion.alternatives.pop()) {
        Some(mut alternatives) if alternatives.len() > 1 => {
            alternatives.truncate(ALTERNATIVES); // vLLM adds the drawn token
            Ok(alternatives)
        }
        _ => Err(unexpected(server.url(), "no alternatives")),
    }
}

/// Classifies descending log-probabilities at the temperatures 1 and 2; `None` if the numbers are
/// not log-probabilities.
fn classify(at_1: &[f64], at_2: &[f64]) -> Option<LogProbKind> {
    if probability_sum(at_1) > MAX_SUM || probability_sum(at_2) > MAX_SUM {
        return None;
    }
    // Doubling the temperature halves the spread of processed log-probabilities.
    let is_processed = spread(at_2) < 0.75 * spread(at_1);
    Some(if is_processed { LogProbKind::Processed } else { LogProbKind::Raw })
}

fn probability_sum(log_probs: &[f64]) -> f64 {
    log_probs.iter().map(|log_prob| log_prob.exp()).sum()
}

/// Returns the difference between the largest and the smallest of descending numbers.
fn spread(values: &[f64]) -> f64 {
    match values {
        [first, .., last] => first - last,
        _ => 0.0,
    }
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
            let at_1 = log_softmax(&logits, 1.0);
            let at_2 = log_softmax(&logits, 2.0);
            assert_eq!(classify(&at_1, &at_2), Some(LogProbKind::Processed));
            assert_eq!(classify(&at_1, &at_1), Some(LogProbKind::Raw));
            assert_eq!(classify(&logits, &logits), None, "logits");
        }
    }

    #[test]
    fn raw_log_probs_fit_temperatures_zero_and_one() {
        assert!(
            LogProbKind::Raw.fits(1.0) && LogProbKind::Raw.fits(0.0) && !LogProbKind::Raw.fits(0.7)
        );
        assert!(LogProbKind::Processed.fits(0.7));
    }
}

//! The record of how the returns of a completion were computed.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::returns::response_return;
use crate::{
    Credit, Granularity, ResponseGrades, RewardSettings, Section, SentenceVerdict, Triplet,
};

/// Everything that went into the returns of one completion.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// Text of the question.
    pub question: String,
    /// Text that the policy generated, tags included.
    pub completion: String,
    /// Grades of the answer judge and the format check.
    pub response: ResponseGrades,
    /// Share of aligned tokens: see [`crate::Alignment::rate`].
    pub alignment_rate: f64,
    /// True if the sentences were not scored: there are none, or too few tokens are aligned to
    /// them. Nothing is extracted or counted then.
    pub fallback: bool,
    /// Sentences in the order of the completion, think block first.
    pub sentences: Vec<SentenceTrace>,
    /// R_k, the mean return over the tokens; over the characters if a text without tokens is scored.
    pub mean_return: f64,
}

/// The record of how a sentence's reward was computed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SentenceTrace {
    /// Text of the sentence.
    pub text: String,
    /// Block that the sentence is in.
    pub section: Section,
    /// Triplets that the extractor read from it.
    pub triplets: Vec<Triplet>,
    /// Verdict of the rule. `None`: the sentences were not scored.
    pub verdict: Option<SentenceVerdict>,
    /// Token span of the sentence (characters if the text has no tokens). `None`: no token is aligned
    /// to it.
    pub tokens: Option<Range<usize>>,
}

impl SentenceTrace {
    /// Returns the rule's reward before λ_c; 0 if it abstained.
    #[must_use]
    pub fn reward(&self) -> f64 {
        self.verdict.as_ref().and_then(|verdict| verdict.reward).map_or(0.0, f64::from)
    }

    /// Returns the mean reward of its tokens before λ_c.
    #[must_use]
    pub fn reward_per_token(&self) -> f64 {
        match self.verdict.as_ref().map(|verdict| &verdict.credit) {
            Some(Credit::AdvantageSign) => 0.0,
            Some(Credit::TokenRewards(_)) => {
                self.reward() / self.tokens.as_ref().map_or(1, ExactSizeIterator::len) as f64
            }
            Some(Credit::Sentence) | None => self.reward(),
        }
    }

    /// Returns true if a count decided the reward, so that the sentence is supported or unsupported.
    #[must_use]
    pub fn is_counted(&self) -> bool {
        self.verdict.as_ref().is_some_and(|verdict| verdict.count.is_some())
    }
}

/// The summands of a completion's mean return, weights included.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ReturnParts {
    /// Answer reward times λ_j.
    pub judge: f64,
    /// Format reward times λ_f.
    pub format: f64,
    /// Mean over the tokens of the sentence rewards times λ_c.
    pub sentences: f64,
}

impl ReturnParts {
    /// Splits the mean return of a trace. `settings` are those that it was scored with.
    #[must_use]
    pub fn new(trace: &Trace, settings: &RewardSettings) -> Self {
        let of_response = response_return(&trace.response, settings);
        let format = settings.lambda_format * trace.response.format.reward;
        Self {
            judge: without_noise(of_response - format),
            format,
            sentences: without_noise(trace.mean_return - of_response),
        }
    }
}

/// Rounds off the noise of a subtraction, and turns −0 into 0.
fn without_noise(value: f64) -> f64 {
    (value * 1e9).round() / 1e9 + 0.0
}

/// A trace with the summands of its return, as results are printed.
#[derive(Debug, Serialize)]
pub struct Explained<'a> {
    /// Trace of the completion, whose fields become those of the record.
    #[serde(flatten)]
    pub trace: &'a Trace,
    /// Summands of the mean return.
    pub return_parts: ReturnParts,
}

impl<'a> Explained<'a> {
    /// Adds the summands to a trace. `settings` are those that it was scored with.
    #[must_use]
    pub fn new(trace: &'a Trace, settings: &RewardSettings) -> Self {
        Self { trace, return_parts: ReturnParts::new(trace, settings) }
    }
}

/// Returns of a completion's tokens, as its trace has them: one for all tokens of a sentence. If
/// single tokens received rewards, it is the mean over the sentence's tokens.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TracedReturns {
    /// Return of the tokens that belong to no sentence.
    pub outside: f64,
    /// Return of the tokens of each sentence, in the order of the trace.
    pub sentences: Vec<f64>,
    /// Sign that the advantages of each sentence's tokens take, 1 or −1; 0 if they keep their own.
    pub advantage_signs: Vec<i8>,
}

/// Returns the returns of the tokens of `trace` under the settings that it was scored with, as
/// [`crate::returns::token_returns`] computes them.
#[must_use]
pub fn traced_returns(trace: &Trace, settings: &RewardSettings) -> TracedReturns {
    let base = response_return(&trace.response, settings);
    let mut returns =
        TracedReturns { outside: base, sentences: Vec::new(), advantage_signs: Vec::new() };
    if settings.granularity == Granularity::Response {
        returns.outside = trace.mean_return; // the same for every token
    }
    for sentence in &trace.sentences {
        returns.sentences.push(match settings.granularity {
            Granularity::Response => trace.mean_return,
            Granularity::Token => base + settings.lambda_corver * sentence.reward_per_token(),
        });
        returns
            .advantage_signs
            .push(sentence.verdict.as_ref().map_or(0, SentenceVerdict::advantage_sign));
    }
    returns
}

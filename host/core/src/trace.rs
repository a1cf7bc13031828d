//! The record of how the returns of a completion were computed.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{Credit, ResponseGrades, Section, SentenceVerdict, Triplet};

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
    /// True if the sentences were not scored, because too few tokens are aligned to them. Nothing is
    /// extracted or counted then.
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

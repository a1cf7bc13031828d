//! Why a completion earned what it earned.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{Credit, ResponseGrades, Section, Triplet, Verdict};

/// Everything that went into the returns of one completion.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// The prompt.
    pub question: String,
    /// What was generated.
    pub completion: String,
    /// Judge and format.
    pub response: ResponseGrades,
    /// See [`crate::Alignment::rate`].
    pub alignment_rate: f64,
    /// The sentence rewards were dropped: too few tokens could be aligned. Nothing was then
    /// extracted or counted.
    pub fallback: bool,
    /// In the order of the completion, think first.
    pub sentences: Vec<SentenceTrace>,
    /// Mean return over the tokens (R_k); over the characters where a text is scored that has no
    /// tokens.
    pub mean_return: f64,
}

/// One sentence's way to its reward.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SentenceTrace {
    /// The sentence.
    pub text: String,
    /// Its block.
    pub section: Section,
    /// What the extractor found.
    pub triplets: Vec<Triplet>,
    /// What the rule said; `None` where the signal was dropped.
    pub verdict: Option<Verdict>,
    /// From its first to past its last aligned token (or character).
    pub tokens: Option<Range<usize>>,
}

impl SentenceTrace {
    /// What the rule gave it, before λ_c; 0 where it abstained.
    #[must_use]
    pub fn reward(&self) -> f64 {
        self.verdict.as_ref().and_then(|verdict| verdict.reward).map_or(0.0, f64::from)
    }

    /// What each of its tokens was paid on average, before λ_c.
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

    /// Whether a count decided its reward, so that support can be asked about at all.
    #[must_use]
    pub fn is_counted(&self) -> bool {
        self.verdict.as_ref().is_some_and(|verdict| verdict.count.is_some())
    }
}

//! Stage 6: sentences and counts → verdicts. The reward rule decides; the host only calls it.

use serde::{Deserialize, Serialize};

use crate::{Count, Counter, PartError, Section, Triplet};

/// What a rule sees of one sentence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleSentence {
    /// Which completion of the batch.
    pub completion: u32,
    /// Which sentence of that completion.
    pub index: u32,
    /// The sentence, trimmed.
    pub text: String,
    /// The block it stood in.
    pub section: Section,
    /// What the extractor found in it.
    pub triplets: Vec<Triplet>,
}

/// A rule's final word on one sentence, with the counts it asked for on the way.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Finite; `None` where the rule abstained, which pays 0.
    pub reward: Option<f32>,
    /// The count that decided.
    pub count: Option<u64>,
    /// Index of the triplet that decided.
    pub triplet: Option<u32>,
    /// The rule's own words.
    pub note: Option<String>,
    /// Everything that was looked up for this sentence, in the order asked.
    pub counts: Vec<Count>,
}

/// A loaded reward rule.
pub trait Rules {
    /// One verdict per sentence, in order. `sentences` holds whole completions.
    ///
    /// # Errors
    /// Where the rule breaks its contract or a limit, or `counter` fails. There is no partial answer.
    fn judge(&mut self, sentences: &[RuleSentence], counter: &mut dyn Counter) -> Result<Vec<Verdict>, PartError>;
}

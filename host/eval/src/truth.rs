//! Facts that an evaluation may check and no reward sees: the truth of sentences.

use std::fmt::Debug;

use corver_core::Sentence;
use serde::{Deserialize, Serialize};

/// Source of facts about a world that is completely known, such as the demo's.
pub trait FactChecker: Debug {
    /// Returns true if all statements of the sentence are true; `None` if it has no statement that
    /// can be decided.
    fn is_true(&self, sentence: &str) -> Option<bool>;
}

/// Number of true and false sentences of a completion.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FactCheck {
    /// Number of true sentences.
    pub truths: usize,
    /// Number of false sentences.
    pub falsehoods: usize,
}

impl FactCheck {
    /// Checks the sentences of a completion, reasoning and answer.
    #[must_use]
    pub fn new(sentences: &[Sentence], facts: &dyn FactChecker) -> Self {
        let mut check = Self::default();
        for sentence in sentences {
            match facts.is_true(&sentence.text) {
                Some(true) => check.truths += 1,
                Some(false) => check.falsehoods += 1,
                None => {}
            }
        }
        check
    }
}

#[cfg(test)]
mod tests {
    use corver_core::TextSettings;
    use corver_core::split::split;

    use super::*;

    #[derive(Debug)]
    struct Short;

    impl FactChecker for Short {
        fn is_true(&self, sentence: &str) -> Option<bool> {
            (!sentence.starts_with("Hm")).then_some(sentence.len() < 10)
        }
    }

    #[test]
    fn truth_counts_think_and_answer_sentences() {
        let text = "<think>Rome is big. Hm, hm. Paris is bigger than Rome.</think><answer>London.</answer>";
        let sentences = split(text, TextSettings::default()).sentences;
        let expected = FactCheck { truths: 1, falsehoods: 2 };
        assert_eq!(FactCheck::new(&sentences, &Short), expected);
    }
}

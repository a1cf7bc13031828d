//! What an evaluation may know and no reward does: whether a sentence is true.

use std::fmt::Debug;

use corver_core::Compatibility;
use corver_core::split::split;
use serde::{Deserialize, Serialize};

/// Knows what is true, in a world that is known altogether.
pub trait Truth: Debug {
    /// Whether all that the sentence states is true; `None` where it states nothing that can be
    /// decided.
    fn is_true(&self, sentence: &str) -> Option<bool>;
}

/// Sentences of one completion.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FactCheck {
    /// Those that are true.
    pub truths: usize,
    /// Those that are false.
    pub falsehoods: usize,
}

impl FactCheck {
    /// Counts the sentences of a completion, reasoning and answer.
    #[must_use]
    pub fn by(completion: &str, truth: &dyn Truth, compatibility: Compatibility) -> Self {
        let sentences = split(completion, compatibility).sentences;
        let told = sentences.iter().filter_map(|sentence| truth.is_true(&sentence.text));
        told.fold(Self::default(), |told, is_true| Self {
            truths: told.truths + usize::from(is_true),
            falsehoods: told.falsehoods + usize::from(!is_true),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Short;

    impl Truth for Short {
        fn is_true(&self, sentence: &str) -> Option<bool> {
            (!sentence.starts_with("Hm")).then_some(sentence.len() < 10)
        }
    }

    #[test]
    fn truth_counts_think_and_answer_sentences() {
        let text = "<think>Rome is big. Hm, hm. Paris is bigger than Rome.</think><answer>London.</answer>";
        assert_eq!(
            FactCheck::by(text, &Short, Compatibility::Paper),
            FactCheck { truths: 1, falsehoods: 2 }
        );
    }
}

//! What an evaluation says of completions beside their grades ([`AnswerRule`]), and the shares of a
//! graded set.

use corver_core::compat::keeps_evaluation_format;
use corver_core::response::{AnswerRule, templated_reasoning};
use corver_core::{Compatibility, Label};
use serde::{Deserialize, Serialize};

/// Why a completion counts as not attempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// It says that it does not know.
    Refused,
    /// It had not come to an answer when its tokens were used up.
    CutOff,
    /// It ended without an answer block, or with an empty one.
    Unformatted,
}

/// What `rule` found instead of an answer; `finished`: the completion ended by itself.
#[must_use]
pub fn missing(completion: &str, finished: bool, rule: AnswerRule) -> Missing {
    match (rule.extract(completion).is_empty(), finished) {
        (false, _) => Missing::Refused,
        (true, false) => Missing::CutOff,
        (true, true) => Missing::Unformatted,
    }
}

/// The evaluation's format rule, which asks nothing of the reasoning: `<think>`, later `</think>`,
/// later `<answer>`. The published evaluation script puts a missing `<think>` in front first
/// ([`Compatibility::Reference`]).
#[must_use]
pub fn keeps_format(completion: &str, compatibility: Compatibility) -> bool {
    match compatibility {
        Compatibility::Paper => templated_reasoning(completion).is_some(),
        Compatibility::Reference => keeps_evaluation_format(completion),
    }
}

/// Shares of a graded set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Grades {
    /// Right answers.
    pub correct: usize,
    /// Wrong answers.
    pub incorrect: usize,
    /// Refusals and missing answers.
    pub not_attempted: usize,
}

impl Grades {
    /// Counts one label.
    pub fn add(&mut self, label: Label) {
        match label {
            Label::Good => self.correct += 1,
            Label::Bad => self.incorrect += 1,
            Label::NotAttempted => self.not_attempted += 1,
        }
    }

    /// All graded completions.
    #[must_use]
    pub fn total(&self) -> usize {
        self.correct + self.incorrect + self.not_attempted
    }

    /// `part` of the whole; 0 of nothing.
    #[must_use]
    pub fn rate(&self, part: usize) -> f64 {
        if self.total() == 0 { 0.0 } else { part as f64 / self.total() as f64 }
    }

    /// Harmonic mean of the precision on attempted questions and the recall over all; 0 where
    /// undefined.
    #[must_use]
    pub fn f1(&self) -> f64 {
        let attempted = self.correct + self.incorrect;
        if self.correct == 0 {
            return 0.0;
        }
        2.0 * self.correct as f64 / (attempted + self.total()) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_answer_kinds_are_distinguished() {
        let paper = AnswerRule::Paper;
        assert_eq!(missing("<answer>I don't know</answer>", true, paper), Missing::Refused);
        assert_eq!(missing("<think>Paris is", false, paper), Missing::CutOff);
        assert_eq!(missing("<think>Paris is</think><answer>", false, paper), Missing::CutOff);
        assert_eq!(missing("Paris.", true, paper), Missing::Unformatted);
        assert_eq!(missing("<answer></answer>", true, paper), Missing::Unformatted);
    }

    #[test]
    fn format_check_requires_think_tag_except_in_reference() {
        let opened_by_the_prompt = "Paris is.</think><answer>Paris";
        assert!(!keeps_format(opened_by_the_prompt, Compatibility::Paper));
        assert!(keeps_format(opened_by_the_prompt, Compatibility::Reference));
        assert!(keeps_format("\n<think>.</think> So: <answer>", Compatibility::Paper));
    }

    #[test]
    fn f1_combines_precision_and_recall_over_attempts() {
        let grades = Grades { correct: 2, incorrect: 1, not_attempted: 1 };
        let (precision, recall) = (2.0 / 3.0, 0.5);
        assert!((grades.f1() - 2.0 * precision * recall / (precision + recall)).abs() < 1e-12);
        assert_eq!(Grades::default().f1(), 0.0);
    }
}

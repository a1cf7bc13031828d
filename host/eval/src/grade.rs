//! Reasons for missing answers, the format of the evaluation, and the number of answers per grade.
//! [`AnswerRule`] grades the answers.

use corver_core::compat::keeps_evaluation_format;
use corver_core::response::{AnswerRule, templated_reasoning};
use corver_core::{Compatibility, Label};
use serde::{Deserialize, Serialize};

/// Reason why a completion is graded NOT_ATTEMPTED.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MissingAnswer {
    /// The completion refuses to answer.
    Refused,
    /// The completion was cut off before an answer.
    CutOff,
    /// The completion ended without an answer block, or with one without words; articles and
    /// punctuation are none.
    Unformatted,
}

/// Returns the reason why a completion is graded NOT_ATTEMPTED. `finished` is true if it was not
/// cut off.
#[must_use]
pub fn missing_answer(completion: &str, finished: bool, rule: AnswerRule) -> MissingAnswer {
    match (rule.is_refusal(rule.extract(completion)), finished) {
        (true, _) => MissingAnswer::Refused,
        (false, false) => MissingAnswer::CutOff,
        (false, true) => MissingAnswer::Unformatted,
    }
}

/// Returns true if a completion has the format of the evaluation: `<think>`, later `</think>`, later
/// `<answer>`, with any reasoning. The published evaluation script prepends a missing `<think>` first
/// ([`Compatibility::Reference`]).
#[must_use]
pub fn keeps_format(completion: &str, compatibility: Compatibility) -> bool {
    match compatibility {
        Compatibility::Paper => templated_reasoning(completion).is_some(),
        Compatibility::Reference => keeps_evaluation_format(completion),
    }
}

/// Number of answers with each grade.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Grades {
    /// Answers that match a gold.
    pub correct: usize,
    /// Answers that match no gold.
    pub incorrect: usize,
    /// Refusals and missing answers.
    pub not_attempted: usize,
}

impl Grades {
    /// Adds an answer with this grade.
    pub fn add(&mut self, label: Label) {
        match label {
            Label::Good => self.correct += 1,
            Label::Bad => self.incorrect += 1,
            Label::NotAttempted => self.not_attempted += 1,
        }
    }

    /// Returns the number of graded answers.
    #[must_use]
    pub fn total(&self) -> usize {
        self.correct + self.incorrect + self.not_attempted
    }

    /// Returns `part` ÷ total; 0 if there are no answers.
    #[must_use]
    pub fn rate(&self, part: usize) -> f64 {
        if self.total() == 0 { 0.0 } else { part as f64 / self.total() as f64 }
    }

    /// Returns the harmonic mean of the precision on attempted questions and the recall on all; 0 if
    /// no answer is correct.
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
        let paper = AnswerRule::default();
        assert_eq!(
            missing_answer("<answer>I don't know</answer>", true, paper),
            MissingAnswer::Refused
        );
        assert_eq!(missing_answer("<think>Paris is", false, paper), MissingAnswer::CutOff);
        assert_eq!(
            missing_answer("<think>Paris is</think><answer>", false, paper),
            MissingAnswer::CutOff
        );
        assert_eq!(missing_answer("Paris.", true, paper), MissingAnswer::Unformatted);
        assert_eq!(missing_answer("<answer></answer>", true, paper), MissingAnswer::Unformatted);
    }

    #[test]
    fn answer_that_normalises_to_nothing_is_no_refusal() {
        for rule in [AnswerRule::default(), AnswerRule::PublishedTraining] {
            for answer in ["A", "?", "The."] {
                let completion = format!("<answer>{answer}</answer>");
                assert_eq!(rule.grade(&completion, &["B".to_owned()]), Label::NotAttempted);
                let reasons =
                    [true, false].map(|finished| missing_answer(&completion, finished, rule));
                assert_eq!(reasons, [MissingAnswer::Unformatted, MissingAnswer::CutOff]);
            }
        }
        let curly = "<answer>I don\u{2019}t know</answer>";
        let training = AnswerRule::PublishedTraining;
        assert_eq!(missing_answer(curly, true, training), MissingAnswer::Refused);
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

//! What rules are given: a completion with its question, its sentences and the facts found in them.

use crate::{Question, Rollout, Sentence};

/// One completion, whole.
#[derive(Debug, Clone, Copy)]
pub struct Completion<'a> {
    /// The prompt.
    pub question: &'a str,
    /// Accepted answers.
    pub golds: &'a [String],
    /// What was generated, tags included.
    pub text: &'a str,
    /// Think first, then answer.
    pub sentences: &'a [Sentence],
}

impl<'a> Completion<'a> {
    /// What `rollout` generated for `question`, split already.
    #[must_use]
    pub fn new(question: &'a Question, rollout: &'a Rollout, sentences: &'a [Sentence]) -> Self {
        Self { question: &question.question, golds: &question.golds, text: &rollout.text, sentences }
    }
}

//! What rules are given: a completion with its question, its sentences and the facts found in them.

use crate::{Question, Rollout, Sentence};

/// One completion, whole.
#[derive(Debug, Clone, Copy, Default)]
pub struct Completion<'a> {
    /// The prompt.
    pub question: &'a str,
    /// Accepted answers.
    pub golds: &'a [String],
    /// Where the answer was found, if the question's file says so.
    pub title: Option<&'a str>,
    /// Texts that hold the answer, if the question's file brings them.
    pub evidence: &'a [String],
    /// What was generated, tags included.
    pub text: &'a str,
    /// Think first, then answer.
    pub sentences: &'a [Sentence],
}

impl<'a> Completion<'a> {
    /// What `rollout` generated for `question`, split already.
    #[must_use]
    pub fn new(question: &'a Question, rollout: &'a Rollout, sentences: &'a [Sentence]) -> Self {
        let Question { question, golds, title, evidence, .. } = question;
        Self { question, golds, title: title.as_deref(), evidence, text: &rollout.text, sentences }
    }
}

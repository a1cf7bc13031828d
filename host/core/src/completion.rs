//! The input of rules: a completion with its question, its sentences and their triplets.

use crate::{Question, Rollout, Sentence};

/// A completion with its question and its sentences.
#[derive(Debug, Clone, Copy, Default)]
pub struct Completion<'a> {
    /// Text of the question.
    pub question: &'a str,
    /// Accepted answers to the question.
    pub golds: &'a [String],
    /// Title of the document that the answer is from, if the question's file has it.
    pub title: Option<&'a str>,
    /// Texts that contain the answer, if the question's file has them.
    pub evidence: &'a [String],
    /// Text that the policy generated, tags included.
    pub text: &'a str,
    /// Sentences of the think block, then those of the answer block.
    pub sentences: &'a [Sentence],
}

impl<'a> Completion<'a> {
    /// Joins a rollout with its question and its sentences.
    #[must_use]
    pub fn new(question: &'a Question, rollout: &'a Rollout, sentences: &'a [Sentence]) -> Self {
        let Question { question, golds, title, evidence, .. } = question;
        Self { question, golds, title: title.as_deref(), evidence, text: &rollout.text, sentences }
    }
}

//! A chat model as a second judge of graded answers, or of sentences that people label, with its
//! agreement with the string match or with the people. For validation only; it gives no reward
//! (paper, App. “Optional LLM judge”).

pub mod agreement;
pub mod answer;
pub mod prompt;
pub mod sentence;

use std::borrow::Cow;
use std::fmt::Display;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use agreement::{JudgeAgreement, Kappa, kappa};
pub use answer::{AnswerError, Item, read_items};
pub use prompt::{JudgeSettings, PromptError};
pub use sentence::{SentenceFindings, by_count};

/// Item that a model labels.
pub trait JudgeSubject: Serialize {
    /// Label of an item.
    type Label: Copy + PartialEq + Display + Sync + Serialize + DeserializeOwned;
    /// Names of fields that a prompt may have in braces.
    const FIELDS: &'static [&'static str];
    /// Fields of which a prompt must have one, so that the model sees the item.
    const SHOWN: &'static [&'static str];
    /// Labels that a judge must be able to give: one for right, and one for wrong.
    const NEEDED: [Self::Label; 2];

    /// Returns the text that replaces a field in a prompt.
    fn field(&self, name: &str) -> Cow<'_, str>;
    /// Returns the label of the other judge; `None` if there is none.
    fn label(&self) -> Option<Self::Label>;
    /// True if the label is a decision that another can contradict; “unclear” is none.
    fn is_decided(label: Self::Label) -> bool;
}

/// Item with the labels of both judges.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JudgedSubject<'a, S: JudgeSubject> {
    /// Item with the other judge's label.
    #[serde(flatten)]
    pub subject: &'a S,
    /// Label of the model; `None` if its reply is no label.
    pub model: Option<S::Label>,
    /// Reply of the model.
    pub reply: &'a str,
}

impl<S: JudgeSubject> JudgedSubject<'_, S> {
    /// Returns both labels, the model's second; `None` unless both are decided.
    #[must_use]
    pub fn labels(&self) -> Option<(S::Label, S::Label)> {
        let other = self.subject.label()?;
        let model = self.model?;
        (S::is_decided(other) && S::is_decided(model)).then_some((other, model))
    }

    /// True if both labels are decided and differ.
    #[must_use]
    pub fn is_disputed(&self) -> bool {
        self.labels().is_some_and(|(other, model)| other != model)
    }
}

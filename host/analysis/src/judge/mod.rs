//! A second opinion: what a chat model says of graded answers, or of sentences that people label,
//! and how far it agrees with the string match, or with the people. For validation alone; no reward
//! comes from here (paper, App. “Optional LLM judge”).

pub mod agreement;
pub mod answer;
pub mod prompt;
pub mod sentence;

use std::borrow::Cow;
use std::fmt::Display;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use agreement::{Agreement, Kappa, kappa};
pub use answer::{AnswerError, Item, read_items};
pub use prompt::{JudgeSettings, PromptError};
pub use sentence::{SentenceFindings, by_count};

/// What a model is asked about, one at a time.
pub trait Subject: Serialize {
    /// What can be said of it.
    type Label: Copy + PartialEq + Display + Sync + Serialize + DeserializeOwned;
    /// What a prompt may hold in braces.
    const FIELDS: &'static [&'static str];
    /// A prompt holds one of these, or the model sees nothing to judge.
    const SHOWN: &'static [&'static str];
    /// What a judge must be able to say: that it is right, and that it is wrong.
    const NEEDED: [Self::Label; 2];

    /// What stands in a prompt in place of one of the fields.
    fn field(&self, name: &str) -> Cow<'_, str>;
    /// What the other judge says of it; `None` of nothing.
    fn label(&self) -> Option<Self::Label>;
    /// Whether the label can differ from another: “nobody can say” differs from none.
    fn is_decided(label: Self::Label) -> bool;
}

/// One subject with both opinions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Judged<'a, S: Subject> {
    /// With the other judge's.
    #[serde(flatten)]
    pub subject: &'a S,
    /// What the model says; `None` where its reply is no label.
    pub model: Option<S::Label>,
    /// Its reply.
    pub reply: &'a str,
}

impl<S: Subject> Judged<'_, S> {
    /// Both labels, the model's second, where both are decided.
    #[must_use]
    pub fn labels(&self) -> Option<(S::Label, S::Label)> {
        let decided = |label: &S::Label| S::is_decided(*label);
        self.subject.label().filter(decided).zip(self.model.filter(decided))
    }

    /// Whether both are decided, and not alike.
    #[must_use]
    pub fn is_disputed(&self) -> bool {
        self.labels().is_some_and(|(other, model)| other != model)
    }
}

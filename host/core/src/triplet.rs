//! Stage 4: sentences → triplets. The extractor's reply, read tolerantly.

use serde::{Deserialize, Serialize};

use crate::PartError;

/// One fact that a sentence states.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Triplet {
    /// Subject.
    pub head: String,
    /// Relation; may be empty.
    pub relation: String,
    /// Object.
    pub tail: String,
}

/// The triplet model.
pub trait Extractor {
    /// The triplets of each sentence, in order; none is an ordinary answer.
    ///
    /// # Errors
    /// Where the model cannot run.
    fn extract(&mut self, sentences: &[&str]) -> Result<Vec<Vec<Triplet>>, PartError>;
}

/// One element of a model reply: text, or a list of elements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Element {
    /// Text between separators, trimmed.
    Text(String),
    /// A bracketed list.
    List(Vec<Element>),
}

//! Stage 1: questions. Crate `corver-data` reads them from files.

use serde::{Deserialize, Serialize};

use crate::text::strip;

/// One prompt with its gold answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The user message, sent as it is.
    pub question: String,
    /// Every spelling that counts as right. Empty where nobody knows: the judge then pays nothing.
    pub golds: Vec<String>,
    /// Where the answer was found, if the file says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// How often people look for what it asks about, if the file says so: `popularity`, or PopQA's
    /// `s_pop`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub popularity: Option<u64>,
    /// Texts that hold the answer, if the file brings them: `evidence`, or HotpotQA's `context`.
    /// Some rules verify against them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
}

/// Returns the gold answers of a training record: separated by `;`, blank ones ignored.
#[must_use]
pub fn split_golds(answers: &str) -> Vec<String> {
    answers.split(';').map(strip).filter(|gold| !gold.is_empty()).map(str::to_owned).collect()
}

//! Stage 1: questions. Crate `corver-data` reads them from files.

use serde::{Deserialize, Serialize};

use crate::text::strip;

/// A prompt with its golds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Text of the user message.
    pub question: String,
    /// Accepted answers. If empty, the answer reward is 0.
    pub golds: Vec<String>,
    /// Title of the document that the answer is from, if the file has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Page views of the question's subject, if the file has them: `popularity`, or PopQA's `s_pop`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub popularity: Option<u64>,
    /// Texts that contain the answer, if the file has them: `evidence`, or HotpotQA's `context`. Some
    /// rules check sentences against them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
}

/// Returns the gold answers of a training record: separated by `;`, blank ones ignored.
#[must_use]
pub fn split_golds(answers: &str) -> Vec<String> {
    answers.split(';').map(strip).filter(|gold| !gold.is_empty()).map(str::to_owned).collect()
}

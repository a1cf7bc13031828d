//! Bounds of a check that a client requests.

use corver_core::split::split_text;
use corver_reward::Scorer;
use corver_reward::check::{CheckedText, Text};

/// Largest number of passages per claim.
pub const MAX_PASSAGES: usize = 20;
/// Largest number of passages per request, if each sentence states one fact.
const MAX_PASSAGES_IN_ALL: usize = 2_000;
/// Largest number of sentences per request.
const MAX_SENTENCES: usize = 512;

/// Failure of a check that a client requested.
pub enum CheckError {
    /// If the request asks for what cannot be.
    Invalid(String),
    /// If the request exceeds a bound.
    TooLarge(String),
    /// If a part of the reward fails.
    Failed(anyhow::Error),
}

/// Checks the texts of a request, as `corver-host check --json` does. `passages`: for each claim;
/// `None`: 1 if an index is on this machine.
pub fn check(
    scorer: &mut Scorer,
    texts: &[Text],
    passages: Option<usize>,
) -> Result<Vec<CheckedText>, CheckError> {
    let passages = passages.unwrap_or(usize::from(scorer.has_passages()));
    if passages > MAX_PASSAGES {
        return Err(CheckError::Invalid(format!(
            "\"passages\" is {passages}; at most {MAX_PASSAGES} are shown"
        )));
    }
    let settings = scorer.checked_text();
    let sentences: usize = texts.iter().map(|text| split_text(&text.text, settings).len()).sum();
    if sentences > MAX_SENTENCES {
        return Err(CheckError::TooLarge(format!(
            "{sentences} sentences; at most {MAX_SENTENCES} are checked at a time"
        )));
    }
    if passages * sentences > MAX_PASSAGES_IN_ALL {
        return Err(CheckError::TooLarge(format!(
            "{passages} passages for each of {sentences} sentences; at most \
             {MAX_PASSAGES_IN_ALL} in all"
        )));
    }
    if passages > 0 && !scorer.has_passages() {
        return Err(CheckError::Invalid(
            "this server's index is on another one, which has no passages to show".into(),
        ));
    }
    scorer.check(texts, passages).map_err(CheckError::Failed)
}

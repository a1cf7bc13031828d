//! Rewards over HTTP. A request is parsed and checked, scored in one batch with the other queued
//! requests, and answered in the format of its route.
//!
//! ```text
//! openrlhf.rs ─┐                            ┌─▶ openrlhf.rs
//!              ├─▶ queue.rs ─▶ worker.rs ───┤
//! native.rs  ──┘                            └─▶ native.rs
//! ```

mod metrics;
mod native;
mod openrlhf;
mod queue;
mod worker;

use std::ops::Range;

use corver_core::split::split;
use corver_core::{Question, RewardSettings, Rollout};
use hyper::body::Bytes;
use serde::de::DeserializeOwned;

use crate::HttpError;

pub use native::score_route;
pub use openrlhf::reward_route;
pub use queue::{Queue, QueueLimits, unbatched_route};
pub use worker::ScoreFn;

/// Completion that a client submits.
struct SubmittedCompletion {
    question: Question,
    text: String,
    /// `[T]` characters of `text` that each token covers. `None`: one token for each character.
    tokens: Option<Vec<Option<Range<usize>>>>,
}

impl SubmittedCompletion {
    fn rollout(&self, question: usize) -> Rollout {
        let rollout = Rollout::of_text(question, self.text.clone());
        match &self.tokens {
            Some(spans) => Rollout { token_spans: spans.clone(), ..rollout },
            None => rollout,
        }
    }

    /// Refuses a completion beyond the limits.
    fn check(&self, limits: &QueueLimits, settings: &RewardSettings) -> Result<(), HttpError> {
        // A longer text is not split.
        let sentences = if self.text.len() > limits.completion_bytes {
            0
        } else {
            split(&self.text, settings.text()).sentences.len()
        };
        let tokens = self.tokens.as_ref().map_or(0, Vec::len);
        for (unit, got, limit) in [
            ("bytes", self.text.len(), limits.completion_bytes),
            ("sentences", sentences, limits.sentences),
            ("tokens", tokens, limits.tokens),
        ] {
            if got > limit {
                return Err(HttpError::too_large(format!(
                    "a completion of {got} {unit}; at most {limit} are accepted"
                )));
            }
        }
        Ok(())
    }

    /// Returns the number of bytes and tokens, a measure of the memory for scoring.
    fn size(&self) -> usize {
        self.text.len() + self.tokens.as_ref().map_or(0, Vec::len)
    }
}

/// Parses a request, away from the threads that serve connections. `form` describes a valid request
/// in the error message.
pub(crate) async fn parse_request<T: DeserializeOwned + Send + 'static>(
    body: Bytes,
    form: &'static str,
) -> Result<T, HttpError> {
    let result =
        run_blocking(move || serde_json::from_slice(corver_files::strip_bom(&body))).await?;
    result
        .map_err(|error| HttpError::bad_request(format!("Invalid request: {error}; it is {form}")))
}

/// Runs work of milliseconds, away from the threads that serve connections.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, HttpError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| HttpError::internal(error.to_string()))
}

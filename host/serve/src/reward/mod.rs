//! Rewards over HTTP: requests are read and checked, scored together with whatever else is queued,
//! and answered in the form of whoever asks.
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

use corver_core::sentence::split_sentences;
use corver_core::{Question, Rollout};
use hyper::body::Bytes;
use serde::de::DeserializeOwned;

use crate::Refusal;

pub use native::score;
pub use openrlhf::get_reward;
pub use queue::{Queue, QueueLimits, between_batches};
pub use worker::ScoreFn;

/// A text that is to be scored.
struct Completion {
    question: Question,
    text: String,
    /// `[T]` characters of `text`, where the client has told its tokens; else each character stands
    /// for one.
    tokens: Option<Vec<Option<Range<usize>>>>,
}

impl Completion {
    fn rollout(&self, question: usize) -> Rollout {
        let rollout = Rollout::of_text(question, self.text.clone());
        match &self.tokens {
            Some(spans) => Rollout { token_spans: spans.clone(), ..rollout },
            None => rollout,
        }
    }

    /// Refuses what is larger than the limits.
    fn check(&self, limits: &QueueLimits) -> Result<(), Refusal> {
        let sentences = split_sentences(&self.text).count();
        let sizes = [
            ("bytes", self.text.len(), limits.completion_bytes),
            ("sentences", sentences, limits.sentences),
            ("tokens", self.tokens.as_ref().map_or(0, Vec::len), limits.tokens),
        ];
        match sizes.into_iter().find(|(_, got, most)| got > most) {
            None => Ok(()),
            Some((what, got, most)) => Err(Refusal::too_large(format!(
                "a completion of {got} {what}; at most {most} are taken"
            ))),
        }
    }

    /// A measure of the memory that it takes.
    fn size(&self) -> usize {
        self.text.len() + self.tokens.as_ref().map_or(0, Vec::len)
    }
}

/// Reads a request, away from the threads that serve connections; `form` says what it should be.
async fn read<T: DeserializeOwned + Send + 'static>(
    body: Bytes,
    form: &'static str,
) -> Result<T, Refusal> {
    let read = move || {
        serde_json::from_slice(&body)
            .map_err(|error| Refusal::bad(format!("Invalid request: {error}; it is {form}")))
    };
    compute(read).await?
}

/// Work of milliseconds, away from the threads that serve connections.
async fn compute<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Refusal::failed(error.to_string()))
}

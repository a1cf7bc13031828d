//! An attempt, again and again.

use std::time::{Duration, Instant};

use backon::{BackoffBuilder, ExponentialBuilder};

use crate::pace::Pace;
use crate::{Failure, FirstFailure};

/// Waits between attempts: they double, and as much again at most is drawn, so that clients that
/// failed together do not come back together.
const BACKOFF: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(250))
    .with_max_delay(Duration::from_millis(7_500))
    .without_max_times()
    .with_jitter();

/// Why there is no answer.
#[derive(Debug)]
pub enum Unanswered {
    /// The server understood and will not answer: its words.
    Refused(String),
    /// No usable answer came for as long as one is waited for.
    GaveUp {
        /// How often it was tried.
        attempts: u32,
        /// For how long.
        seconds: f64,
        /// How the last attempt failed.
        last: String,
    },
}

/// How long, and how fast, a server is asked.
#[derive(Debug)]
pub struct Patience {
    pace: Pace,
    limit: Duration,
}

impl Patience {
    /// Tries a request again for `limit`. So many requests per second are begun, of all that share
    /// this; 0 sets no limit.
    #[must_use]
    pub fn new(limit: Duration, requests_per_second: Option<f64>) -> Self {
        Self { pace: Pace::new(requests_per_second), limit }
    }

    /// Repeats an attempt until there is an answer, a refusal, or no patience left. `None` where
    /// another request of the batch failed first. `url` is for the log.
    ///
    /// # Errors
    /// Where there is no answer.
    pub fn ask<T, E>(
        &self,
        url: &str,
        batch: &FirstFailure<E>,
        attempt: impl Fn() -> Result<T, Failure>,
    ) -> Result<Option<T>, Unanswered> {
        let mut backoff = BACKOFF.build();
        let mut start = Instant::now();
        let mut attempts = 0;
        loop {
            let turn = self.pace.wait(Instant::now());
            if !batch.sleep(turn) {
                return Ok(None);
            }
            start += turn; // patience is for the server, not for our own pace
            attempts += 1;
            let (problem, retry_after) = match attempt() {
                Ok(answer) => return Ok(Some(answer)),
                Err(Failure::Refused(message)) => return Err(Unanswered::Refused(message)),
                Err(Failure::Passing { problem, retry_after }) => (problem, retry_after),
            };
            let wait = backoff.next().unwrap_or_default().max(retry_after);
            if start.elapsed().saturating_add(wait) > self.limit {
                return Err(Unanswered::GaveUp {
                    attempts,
                    seconds: start.elapsed().as_secs_f64(),
                    last: problem,
                });
            }
            tracing::warn!(url, attempts, problem, again_in = ?wait, "no answer");
            if !batch.sleep(wait) {
                return Ok(None);
            }
        }
    }
}

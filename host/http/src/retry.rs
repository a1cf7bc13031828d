//! Retries with exponential backoff.

use std::time::{Duration, Instant};

use backon::{BackoffBuilder, ExponentialBuilder};

use crate::rate_limit::RateLimiter;
use crate::{AttemptError, FirstFailure, shorten_foreign};

/// Exponential backoff: each wait is twice the one before. Jitter of up to the same length keeps
/// clients that failed together from retrying together.
const BACKOFF: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(250))
    .with_max_delay(Duration::from_millis(7_500))
    .without_max_times()
    .with_jitter();

/// The final failure of a request.
#[derive(Debug)]
pub enum RequestError {
    /// The server understood the request and refuses it, with this message of at most 500
    /// characters. A retry is of no use.
    Refused(String),
    /// Every attempt failed with a transient error until the time was up.
    RetriesExhausted {
        /// Number of attempts; 1 or more.
        attempts: u32,
        /// Time since the first attempt, seconds, without waits for the rate limit.
        seconds: f64,
        /// Error of the last attempt, at most 500 characters.
        last_error: String,
    },
}

/// Retries of requests to one server, and the rate limit that they share.
#[derive(Debug)]
pub struct RetryPolicy {
    rate_limiter: RateLimiter,
    max_elapsed: Duration,
}

impl RetryPolicy {
    /// Creates a policy that retries a request for `max_elapsed`; zero allows one attempt. All
    /// requests of the policy share the rate limit; `None` sets no limit.
    #[must_use]
    pub fn new(max_elapsed: Duration, requests_per_second: Option<f64>) -> Self {
        Self { rate_limiter: RateLimiter::new(requests_per_second), max_elapsed }
    }

    /// Repeats an attempt until it succeeds, is refused, or the policy's time is up. Returns `None`
    /// if another request of the batch failed first. `url` is for the log.
    ///
    /// # Errors
    /// Fails if the server refuses the request, or every attempt failed.
    pub fn run<T, E>(
        &self,
        url: &str,
        batch: &FirstFailure<E>,
        attempt: impl Fn() -> Result<T, AttemptError>,
    ) -> Result<Option<T>, RequestError> {
        let mut backoff = BACKOFF.build();
        let mut start = Instant::now();
        let mut attempts = 0;
        loop {
            let rate_limit_wait = self.rate_limiter.reserve(Instant::now());
            if !batch.sleep(rate_limit_wait) {
                return Ok(None);
            }
            start += rate_limit_wait; // our own rate limit must not use up the server's time
            attempts += 1;
            let (problem, retry_after) = match attempt() {
                Ok(response) => return Ok(Some(response)),
                Err(AttemptError::Refused(message)) => {
                    return Err(RequestError::Refused(shorten_foreign(&message)));
                }
                Err(AttemptError::Transient { problem, retry_after }) => {
                    (shorten_foreign(&problem), retry_after)
                }
            };
            let wait = backoff.next().unwrap_or_default().max(retry_after);
            if start.elapsed().saturating_add(wait) > self.max_elapsed {
                return Err(RequestError::RetriesExhausted {
                    attempts,
                    seconds: start.elapsed().as_secs_f64(),
                    last_error: problem,
                });
            }
            tracing::warn!(url, attempts, problem, retry_in = ?wait, "request failed, retrying");
            if !batch.sleep(wait) {
                return Ok(None);
            }
        }
    }
}

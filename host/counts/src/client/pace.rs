//! When a request may begin, and what ends the wait for it.

use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use super::RemoteError;

/// So many requests per second, of all connections together.
///
/// A rate limiter of a crate (governor) would bring seven more for these few lines: there is one key, and no burst.
#[derive(Debug)]
pub(super) struct Pace {
    /// Between two requests; zero without a limit.
    interval: Duration,
    /// The next free slot.
    next: Mutex<Instant>,
}

impl Pace {
    /// 0 sets no limit.
    pub(super) fn new(requests_per_second: f64) -> Self {
        // More than can be counted in nanoseconds is no limit, less than one in an age is one in an age.
        let interval = if requests_per_second > 0.0 { 1.0 / requests_per_second } else { 0.0 };
        let interval = Duration::try_from_secs_f64(interval).unwrap_or(Duration::from_secs(u64::from(u32::MAX)));
        Self { interval, next: Mutex::new(Instant::now()) }
    }

    /// Takes the next slot, and says how far away it is.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        let mut next = self.next.lock().unwrap_or_else(|poisoned| poisoned.into_inner()); // an instant is never half-written
        let slot = now.max(*next);
        *next = slot + self.interval;
        slot - now
    }
}

/// The first failure of a batch. It wakes those that sleep for the batch.
#[derive(Debug)]
pub(super) struct FirstFailure {
    error: Mutex<Option<RemoteError>>,
    happened: Condvar,
}

impl FirstFailure {
    pub(super) fn new() -> Self {
        Self { error: Mutex::new(None), happened: Condvar::new() }
    }

    pub(super) fn set(&self, error: RemoteError) {
        self.lock().get_or_insert(error);
        self.happened.notify_all();
    }

    /// Sleeps so long, unless there is a failure; whether there is none.
    pub(super) fn sleep(&self, wait: Duration) -> bool {
        let waited = self.happened.wait_timeout_while(self.lock(), wait, |error| error.is_none());
        waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0.is_none()
    }

    pub(super) fn into_result(self) -> Result<(), RemoteError> {
        self.error.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()).map_or(Ok(()), Err)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<RemoteError>> {
        self.error.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) // an error is inserted whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_keep_their_distance() {
        let pace = Pace::new(10.0);
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        assert_eq!(pace.wait(start), Duration::ZERO);
        assert_eq!(pace.wait(after(30)), Duration::from_millis(70));
        assert_eq!(pace.wait(after(30)), Duration::from_millis(170));
        assert_eq!(pace.wait(after(500)), Duration::ZERO);
    }

    #[test]
    fn without_a_limit_nothing_waits() {
        let pace = Pace::new(0.0);
        let now = Instant::now();
        assert!((0..100).all(|_| pace.wait(now).is_zero()));
    }

    #[test]
    fn a_failure_wakes_the_sleeping() {
        let failure = FirstFailure::new();
        assert!(failure.sleep(Duration::from_millis(1)));
        let start = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(!failure.sleep(Duration::from_secs(60))));
            failure.set(RemoteError::Span);
            failure.set(RemoteError::Setting { setting: "", expected: "" });
        });
        assert!(start.elapsed() < Duration::from_secs(30));
        assert!(matches!(failure.into_result(), Err(RemoteError::Span)), "the first is kept");
    }
}

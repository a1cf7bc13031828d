//! The rate limit of a client.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A limit on requests per second, shared by all connections of a client.
///
/// There is one key and no burst, so a few lines replace a crate (governor would bring seven more).
#[derive(Debug)]
pub(crate) struct RateLimiter {
    /// Time between the starts of two requests; zero if there is no limit.
    interval: Duration,
    /// Earliest start of the next request.
    next_slot: Mutex<Instant>,
}

impl RateLimiter {
    /// Creates a rate limiter; `None` sets no limit.
    pub(crate) fn new(requests_per_second: Option<f64>) -> Self {
        let seconds = requests_per_second.map_or(0.0, |rate| 1.0 / rate);
        // A rate near zero overflows a `Duration`; 2³² s between requests is as good as never.
        let interval = Duration::try_from_secs_f64(seconds)
            .unwrap_or(Duration::from_secs(u64::from(u32::MAX)));
        Self { interval, next_slot: Mutex::new(Instant::now()) }
    }

    /// Reserves the next slot and returns the time until it begins.
    pub(crate) fn reserve(&self, now: Instant) -> Duration {
        // A panic cannot leave an `Instant` half-written, so a poisoned lock is usable.
        let mut next_slot = self.next_slot.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = now.max(*next_slot);
        *next_slot = slot + self.interval;
        slot - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_limit_spaces_requests() {
        let limiter = RateLimiter::new(Some(10.0));
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        assert_eq!(limiter.reserve(start), Duration::ZERO);
        assert_eq!(limiter.reserve(after(30)), Duration::from_millis(70));
        assert_eq!(limiter.reserve(after(30)), Duration::from_millis(170));
        assert_eq!(limiter.reserve(after(500)), Duration::ZERO);
    }

    #[test]
    fn absent_rate_limit_never_waits() {
        let limiter = RateLimiter::new(None);
        let now = Instant::now();
        assert!((0..100).all(|_| limiter.reserve(now).is_zero()));
    }
}

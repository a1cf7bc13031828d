//! When the next request may begin: so many per second, and none while the server has asked for peace.

use std::sync::Mutex;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct Pace {
    /// Between two requests; zero without a limit.
    interval: Duration,
    next: Mutex<Instant>,
}

impl Pace {
    pub(crate) fn new(requests_per_second: f64, now: Instant) -> Self {
        // More than can be counted in nanoseconds is no limit, less than one in an age is one in an age.
        let interval = if requests_per_second > 0.0 { 1.0 / requests_per_second } else { 0.0 };
        let interval = Duration::try_from_secs_f64(interval).unwrap_or(Duration::from_secs(u64::from(u32::MAX)));
        Self { interval, next: Mutex::new(now) }
    }

    /// How long to wait before a request; zero takes the place in the line, anything else means: ask again then.
    pub(crate) fn wait(&self, now: Instant) -> Duration {
        let mut next = self.next.lock().unwrap_or_else(|poisoned| poisoned.into_inner()); // an instant is never half-written
        let wait = next.saturating_duration_since(now);
        if wait.is_zero() {
            *next = now + self.interval;
        }
        wait
    }

    /// Lets no request begin for this long.
    pub(crate) fn hold(&self, now: Instant, pause: Duration) {
        let mut next = self.next.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(until) = now.checked_add(pause) {
            *next = until.max(*next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_keep_their_distance() {
        let start = Instant::now();
        let pace = Pace::new(10.0, start);
        let after = |ms| start + Duration::from_millis(ms);
        assert_eq!(pace.wait(after(0)), Duration::ZERO);
        assert_eq!(pace.wait(after(30)), Duration::from_millis(70));
        assert_eq!(pace.wait(after(100)), Duration::ZERO);
        pace.hold(after(100), Duration::from_secs(1));
        assert_eq!(pace.wait(after(600)), Duration::from_millis(500));
        pace.hold(after(600), Duration::ZERO); // does not shorten what was asked for before
        assert_eq!(pace.wait(after(600)), Duration::from_millis(500));
    }

    #[test]
    fn without_a_limit_nothing_waits() {
        let start = Instant::now();
        let pace = Pace::new(0.0, start);
        assert!((0..100).all(|_| pace.wait(start).is_zero()));
    }
}

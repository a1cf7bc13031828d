//! A circuit breaker: after some failures in a row nobody asks for a while, and then one request at a time, until one
//! succeeds. A server that is down is not hammered, and one that comes back is not run over.

use std::sync::Mutex;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct Breaker {
    failures_to_open: u32,
    pause: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// Requests go out; so many failed since the last success.
    Closed { failures: u32 },
    /// None goes out before this.
    Open { until: Instant },
    /// One went out at this time to see how things are.
    HalfOpen { since: Instant },
}

impl Breaker {
    pub(crate) fn new(failures_to_open: u32, pause: Duration) -> Self {
        Self { failures_to_open, pause, state: Mutex::new(State::Closed { failures: 0 }) }
    }

    /// How long to wait before a request; zero admits it, anything else means: ask again then.
    pub(crate) fn wait(&self, now: Instant) -> Duration {
        let mut state = self.lock();
        match *state {
            State::Closed { .. } => Duration::ZERO,
            State::Open { until } if now < until => until - now,
            // The one that went ahead will be back; if it never is (its thread died), another goes.
            State::HalfOpen { since } if now < since + 10 * self.pause => {
                (self.pause / 10).max(Duration::from_millis(1))
            }
            State::Open { .. } | State::HalfOpen { .. } => {
                *state = State::HalfOpen { since: now };
                Duration::ZERO
            }
        }
    }

    /// The server answered, if only to refuse.
    pub(crate) fn answered(&self) {
        *self.lock() = State::Closed { failures: 0 };
    }

    /// It did not.
    pub(crate) fn failed(&self, now: Instant) {
        let mut state = self.lock();
        *state = match *state {
            State::Closed { failures } if failures + 1 < self.failures_to_open => {
                State::Closed { failures: failures + 1 }
            }
            State::Closed { .. } | State::HalfOpen { .. } => State::Open { until: now + self.pause },
            // A request that went out before the breaker opened.
            State::Open { until } => State::Open { until },
        };
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) // states are replaced whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_secs(5);

    #[test]
    fn failures_in_a_row_open_it_and_a_success_closes_it() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let breaker = Breaker::new(3, PAUSE);
        breaker.failed(start);
        breaker.failed(start);
        breaker.answered();
        breaker.failed(start);
        breaker.failed(start);
        assert_eq!(breaker.wait(start), Duration::ZERO); // two in a row are not three
        breaker.failed(start);
        assert_eq!(breaker.wait(after(1)), Duration::from_secs(4));

        // After the pause one goes ahead, and only one.
        assert_eq!(breaker.wait(after(5)), Duration::ZERO);
        assert!(!breaker.wait(after(5)).is_zero());
        breaker.failed(after(6));
        assert_eq!(breaker.wait(after(6)), PAUSE);

        assert_eq!(breaker.wait(after(11)), Duration::ZERO);
        breaker.answered();
        assert!(breaker.wait(after(11)).is_zero() && breaker.wait(after(11)).is_zero());
    }

    #[test]
    fn a_scout_that_never_returns_is_replaced() {
        let start = Instant::now();
        let breaker = Breaker::new(1, PAUSE);
        breaker.failed(start);
        assert_eq!(breaker.wait(start + PAUSE), Duration::ZERO);
        assert!(!breaker.wait(start + 2 * PAUSE).is_zero());
        assert_eq!(breaker.wait(start + 12 * PAUSE), Duration::ZERO);
    }
}

//! When a request may begin, what ends the wait for it, and many at a time.

use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// So many requests per second, of all connections together.
///
/// A rate limiter of a crate (governor) would bring seven more for these few lines: there is one
/// key, and no burst.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Between two requests; zero without a limit.
    interval: Duration,
    /// The next free slot.
    next: Mutex<Instant>,
}

impl Pace {
    /// Returns a rate limiter; `None` sets no limit.
    pub(crate) fn new(requests_per_second: Option<f64>) -> Self {
        // More than can be counted in nanoseconds is no limit, less than one in an age is one in an
        // age.
        let interval = requests_per_second.map_or(0.0, |rate| 1.0 / rate);
        let interval = Duration::try_from_secs_f64(interval)
            .unwrap_or(Duration::from_secs(u64::from(u32::MAX)));
        Self { interval, next: Mutex::new(Instant::now()) }
    }

    /// Takes the next slot, and says how far away it is.
    pub(crate) fn wait(&self, now: Instant) -> Duration {
        let mut next = self.next.lock().unwrap_or_else(|poisoned| poisoned.into_inner()); // an instant is never half-written
        let slot = now.max(*next);
        *next = slot + self.interval;
        slot - now
    }
}

/// The first failure of a batch. It wakes those that sleep for the batch.
#[derive(Debug)]
pub struct FirstFailure<E> {
    error: Mutex<Option<E>>,
    happened: Condvar,
}

impl<E> Default for FirstFailure<E> {
    fn default() -> Self {
        Self { error: Mutex::new(None), happened: Condvar::new() }
    }
}

impl<E> FirstFailure<E> {
    /// Fails the batch, unless something else did before.
    pub fn set(&self, error: E) {
        self.lock().get_or_insert(error);
        self.happened.notify_all();
    }

    /// Sleeps so long, unless there is a failure; whether there is none.
    pub fn sleep(&self, wait: Duration) -> bool {
        let waited = self.happened.wait_timeout_while(self.lock(), wait, |error| error.is_none());
        waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0.is_none()
    }

    /// The failure, if there was one.
    ///
    /// # Errors
    /// The first failure.
    pub fn into_result(self) -> Result<(), E> {
        self.error.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()).map_or(Ok(()), Err)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<E>> {
        self.error.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) // an error is inserted whole
    }
}

/// Does `work` for each item, so many at a time, until one fails. `work` ends early, without an
/// error, once the batch has failed.
///
/// # Errors
/// The first failure.
pub fn each<I: Send, E: Send>(
    items: Vec<I>,
    at_a_time: usize,
    work: impl Fn(I, &FirstFailure<E>) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let threads = at_a_time.min(items.len());
    let queue = Mutex::new(items.into_iter());
    let failure = FirstFailure::default();
    let next = || queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).next(); // `next` leaves it whole
    let run = || {
        while failure.sleep(Duration::ZERO)
            && let Some(item) = next()
        {
            if let Err(error) = work(item, &failure) {
                failure.set(error);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(run);
        }
    });
    failure.into_result()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_limit_spaces_requests() {
        let pace = Pace::new(Some(10.0));
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        assert_eq!(pace.wait(start), Duration::ZERO);
        assert_eq!(pace.wait(after(30)), Duration::from_millis(70));
        assert_eq!(pace.wait(after(30)), Duration::from_millis(170));
        assert_eq!(pace.wait(after(500)), Duration::ZERO);
    }

    #[test]
    fn unlimited_pace_never_waits() {
        let pace = Pace::new(None);
        let now = Instant::now();
        assert!((0..100).all(|_| pace.wait(now).is_zero()));
    }

    #[test]
    fn failure_wakes_sleeping_workers() {
        let failure = FirstFailure::default();
        assert!(failure.sleep(Duration::from_millis(1)));
        let start = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(!failure.sleep(Duration::from_secs(60))));
            failure.set("first");
            failure.set("second");
        });
        assert!(start.elapsed() < Duration::from_secs(30));
        assert_eq!(failure.into_result(), Err("first"));
    }

    #[test]
    fn batch_stops_at_first_failure() {
        let done = Mutex::new(Vec::new());
        let work = |item: usize, _: &FirstFailure<usize>| {
            done.lock().unwrap().push(item);
            if item == 30 { Err(item) } else { Ok(()) }
        };
        assert_eq!(each((0..20).collect(), 4, work), Ok(()));
        assert_eq!(done.lock().unwrap().len(), 20);
        assert_eq!(each((20..10_000).collect(), 4, work), Err(30));
        assert!(done.lock().unwrap().len() < 9_000);
    }
}

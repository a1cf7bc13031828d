//! Concurrent work that ends at its first failure.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

// No lock of this module is left with a half-written value by a panic, so a poisoned one is usable.

/// The first failure of a batch. It wakes the workers that sleep between retries.
#[derive(Debug)]
pub struct FirstFailure<E> {
    error: Mutex<Option<E>>,
    has_failed: Condvar,
}

impl<E> Default for FirstFailure<E> {
    fn default() -> Self {
        Self { error: Mutex::new(None), has_failed: Condvar::new() }
    }
}

impl<E> FirstFailure<E> {
    /// Records a failure unless there is one already, and wakes all sleeping workers.
    pub fn set(&self, error: E) {
        self.lock().get_or_insert(error);
        self.has_failed.notify_all();
    }

    /// Sleeps until `duration` has passed or the batch fails. Returns true if the batch has not
    /// failed.
    pub fn sleep(&self, duration: Duration) -> bool {
        self.has_failed
            .wait_timeout_while(self.lock(), duration, |error| error.is_none())
            .unwrap_or_else(PoisonError::into_inner)
            .0
            .is_none()
    }

    /// Converts the batch into its result.
    ///
    /// # Errors
    /// Fails with the first failure, if there is one.
    pub fn into_result(self) -> Result<(), E> {
        match self.error.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<E>> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs `work` on each item of a queue with up to `num_workers` threads, until one fails. `work`
/// may return early, with `Ok`, once the batch has failed.
///
/// # Errors
/// Fails with the first failure.
pub fn for_each_concurrent<I: Send, E: Send>(
    items: Vec<I>,
    num_workers: usize,
    work: impl Fn(I, &FirstFailure<E>) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let num_threads = num_workers.min(items.len());
    let queue = Mutex::new(items.into_iter());
    let failure = FirstFailure::default();
    std::thread::scope(|scope| {
        for _ in 0..num_threads {
            scope.spawn(|| {
                while failure.sleep(Duration::ZERO) {
                    // A statement of its own, so that the lock is free while `work` runs.
                    let item = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some(item) = item else { return };
                    if let Err(error) = work(item, &failure) {
                        failure.set(error);
                    }
                }
            });
        }
    });
    failure.into_result()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

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
        assert_eq!(for_each_concurrent((0..20).collect(), 4, work), Ok(()));
        assert_eq!(done.lock().unwrap().len(), 20);
        assert_eq!(for_each_concurrent((20..10_000).collect(), 4, work), Err(30));
        assert!(done.lock().unwrap().len() < 9_000);
    }
}

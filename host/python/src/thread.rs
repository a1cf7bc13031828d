//! Work without the GIL.

use std::panic::resume_unwind;
use std::sync::OnceLock;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

use crate::error;

/// Process in which rayon's global pool has its threads: the first one that worked.
static FIRST_PROCESS: OnceLock<u32> = OnceLock::new();

/// Interval between two checks for Ctrl-C.
const CHECK_SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// Runs `work` in a thread of its own, while other Python threads run. Ctrl-C ends the waiting
/// immediately; the work itself finishes in the background, since it cannot be interrupted.
///
/// # Errors
/// KeyboardInterrupt, or if the system does not start the threads.
pub fn without_gil<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let own_pool = pool_of_fork()
        .map_err(|error| error::corver(anyhow::Error::new(error).context("starting threads")))?;
    let (sender, mut receiver) = mpsc::channel();
    let worker = thread::Builder::new()
        .name("corver".to_owned())
        .spawn(move || {
            let result = match own_pool {
                Some(pool) => pool.install(work),
                None => work(),
            };
            // Sending fails after Ctrl-C, when the receiver has been dropped.
            drop(sender.send(result));
        })
        .map_err(|error| error::corver(anyhow::Error::new(error).context("starting a thread")))?;
    loop {
        let received;
        // A receiver is not Sync, so it moves into the closure and back.
        (received, receiver) =
            py.detach(move || (receiver.recv_timeout(CHECK_SIGNALS_EVERY), receiver));
        match received {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => match worker.join() {
                Err(panic) => resume_unwind(panic),
                Ok(()) => unreachable!("the thread sends before it ends"),
            },
        }
    }
}

/// Returns a pool for one piece of work in a forked process, in which rayon's global pool has no
/// threads and would never do it. `None` in the first process.
///
/// The pool is not shared: a worker that waits within one piece of work would start another, which
/// may wait for a lock of the first.
fn pool_of_fork() -> Result<Option<ThreadPool>, ThreadPoolBuildError> {
    let process = std::process::id();
    if *FIRST_PROCESS.get_or_init(|| process) == process {
        return Ok(None);
    }
    ThreadPoolBuilder::new().build().map(Some)
}

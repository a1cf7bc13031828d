//! Work without the GIL.

use std::panic::resume_unwind;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;

use crate::error;

/// Interval between two checks for Ctrl-C.
const CHECK_SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// Runs `work` in a thread of its own, while other Python threads run. Ctrl-C ends the waiting
/// immediately; the work itself finishes in the background, since it cannot be interrupted.
///
/// # Errors
/// KeyboardInterrupt, or if the system does not start a thread.
pub fn without_gil<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let (sender, mut receiver) = mpsc::channel();
    let worker = thread::Builder::new()
        .name("corver".to_owned())
        // Sending fails after Ctrl-C, when the receiver has been dropped.
        .spawn(move || drop(sender.send(work())))
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

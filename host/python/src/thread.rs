//! Work without the GIL.

use std::panic::resume_unwind;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;

use crate::error;

/// How often Python is asked whether Ctrl-C was pressed.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// Runs `work` in a thread of its own while other Python threads go on. Ctrl-C ends the waiting at
/// once; the work itself ends in the background, since nothing in it can be broken off.
///
/// # Errors
/// KeyboardInterrupt, or where the system gives no thread.
pub fn without_gil<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let (sender, mut receiver) = mpsc::channel();
    // Nobody receives what ends after Ctrl-C.
    let worker =
        thread::Builder::new().name("corver".to_owned()).spawn(move || drop(sender.send(work())));
    let worker = worker
        .map_err(|error| error::corver(anyhow::Error::new(error).context("starting a thread")))?;
    loop {
        let received;
        (received, receiver) = py.detach(move || (receiver.recv_timeout(ASK_EVERY), receiver));
        match received {
            Ok(done) => return Ok(done),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => match worker.join() {
                Err(panic) => resume_unwind(panic),
                Ok(()) => unreachable!("the thread sends before it ends"),
            },
        }
    }
}

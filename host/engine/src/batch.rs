//! Many requests at a time.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use corver_http::{FirstFailure, RetryPolicy, for_each_concurrent};

use crate::draw::{Completion, Draw};
use crate::error::{EngineError, Result};
use crate::server::{Reply, Server};

/// Between two looks at whether to go on.
const LOOK: Duration = Duration::from_millis(200);

/// Makes every request, so many at a time, and hands the completions to `ended` as they arrive,
/// with the number of their question. `look` is asked several times a second whether to go on;
/// requests that are under way are finished first.
pub(crate) fn draw_all(
    server: &Server,
    draws: Vec<(usize, Draw<'_>)>,
    at_a_time: usize,
    look: &mut dyn FnMut() -> ControlFlow<()>,
    ended: &mut dyn FnMut(usize, Vec<Completion>) -> Result<()>,
) -> Result<()> {
    let (sender, arrived) = mpsc::channel();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stop_asked = &stop;
        let asking = scope.spawn(move || {
            let ask = |(question, draw): (usize, Draw<'_>), batch: &FirstFailure<EngineError>| {
                match server.draw(&draw, batch, stop_asked)? {
                    // Nobody receives what arrives after a failure; that failure is then the
                    // result.
                    Some(Reply::Done(completions)) => drop(sender.send((question, completions))),
                    Some(Reply::NotFound(_)) => return Err(no_model(server, draw.model)),
                    None => {}
                }
                Ok(())
            };
            for_each_concurrent(draws, at_a_time, ask)
        });
        let mut result = Ok(());
        while result.is_ok() {
            match arrived.recv_timeout(LOOK) {
                Ok((question, completions)) => result = ended(question, completions),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if look().is_break() {
                result = Err(EngineError::Stopped);
            }
        }
        stop.store(true, Ordering::Relaxed);
        let asked = asking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        result.and(asked)
    })
}

fn no_model(server: &Server, model: &str) -> EngineError {
    let served = server.models(&RetryPolicy::new(Duration::ZERO, None)).unwrap_or_default();
    server.no_model(model, &served)
}

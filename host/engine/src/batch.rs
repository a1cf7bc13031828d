//! Concurrent requests to a server.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use corver_http::{FirstFailure, RetryPolicy, for_each_concurrent};

use crate::error::{EngineError, Result};
use crate::request::{EngineCompletion, SampleRequest};
use crate::server::{EngineServer, ServerReply};

/// Longest time between two calls of the watch.
const WATCH_INTERVAL: Duration = Duration::from_millis(200);

/// Sends the requests, at most `concurrency` together. Each has the number of its question.
///
/// `on_reply` receives the completions of a question as they arrive. `watch` is called several times
/// a second; if it breaks, requests in flight are finished first.
pub(crate) fn sample_all(
    server: &EngineServer,
    requests: Vec<(usize, SampleRequest<'_>)>,
    concurrency: usize,
    watch: &mut dyn FnMut() -> ControlFlow<()>,
    on_reply: &mut dyn FnMut(usize, Vec<EngineCompletion>) -> Result<()>,
) -> Result<()> {
    let (sender, replies) = mpsc::channel();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stop_flag = &stop;
        let requester = scope.spawn(move || {
            each(requests, concurrency, |(question, request), batch: &FirstFailure<EngineError>| {
                match server.sample(&request, batch, stop_flag)? {
                    // The receiver is gone after a failure. That failure is then the result.
                    Some(ServerReply::Done(completions)) => {
                        drop(sender.send((question, completions)));
                    }
                    Some(ServerReply::NotFound(_)) => return Err(no_model(server, request.model)),
                    None => {}
                }
                Ok(())
            })
        });
        let mut result = Ok(());
        while result.is_ok() {
            match replies.recv_timeout(WATCH_INTERVAL) {
                Ok((question, completions)) => result = on_reply(question, completions),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if watch().is_break() {
                result = Err(EngineError::Stopped);
            }
        }
        stop.store(true, Ordering::Relaxed);
        let request_result =
            requester.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        result.and(request_result)
    })
}

fn no_model(server: &EngineServer, model: &str) -> EngineError {
    let served = server.models(&Patience::new(Duration::ZERO, None)).unwrap_or_default();
    server.no_model(model, &served)
}

//! Routes of a server: a method and a path, with the handler of requests.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Characters of a text that an error message quotes.
const QUOTED_CHARS: usize = 120;

/// Handler of a request's body.
type Handler = Box<dyn Fn(Bytes) -> ReplyFuture + Send + Sync>;
type ReplyFuture = Pin<Box<dyn Future<Output = Result<HttpReply, HttpError>> + Send>>;

/// Method and path, with the handler of their requests.
pub struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    /// Longest body of a request, in bytes.
    pub(crate) body_bytes: usize,
    pub(crate) handler: Handler,
}

impl Route {
    /// Creates a route for GET, with a handler that does not wait.
    pub fn get(
        path: &'static str,
        answer: impl Fn() -> Result<HttpReply, HttpError> + Clone + Send + Sync + 'static,
    ) -> Self {
        Self::new(Method::GET, path, 0, move |_| {
            let answer = answer.clone();
            async move { answer() }
        })
    }

    /// Creates a route for POST, with bodies of at most `body_bytes`.
    pub fn post<A>(
        path: &'static str,
        body_bytes: usize,
        answer: impl Fn(Bytes) -> A + Send + Sync + 'static,
    ) -> Self
    where
        A: Future<Output = Result<HttpReply, HttpError>> + Send + 'static,
    {
        Self::new(Method::POST, path, body_bytes, answer)
    }

    fn new<A>(
        method: Method,
        path: &'static str,
        body_bytes: usize,
        answer: impl Fn(Bytes) -> A + Send + Sync + 'static,
    ) -> Self
    where
        A: Future<Output = Result<HttpReply, HttpError>> + Send + 'static,
    {
        let handler: Handler = Box::new(move |body| Box::pin(answer(body)));
        Self { method, path, body_bytes, handler }
    }
}

/// Content of an answer with status 200.
pub struct HttpReply {
    pub(crate) content_type: &'static str,
    pub(crate) body: Vec<u8>,
}

impl HttpReply {
    /// Encodes a value as JSON.
    ///
    /// # Panics
    /// If serde cannot encode it: a map with keys that are not texts.
    #[must_use]
    pub fn json<T: Serialize>(value: &T) -> Self {
        Self {
            content_type: "application/json",
            body: serde_json::to_vec(value).expect("answers are plain JSON"),
        }
    }

    /// Creates a page.
    #[must_use]
    pub fn html(page: String) -> Self {
        Self::text("text/html; charset=utf-8", page)
    }

    /// Creates a script of a page.
    #[must_use]
    pub fn javascript(script: String) -> Self {
        Self::text("text/javascript; charset=utf-8", script)
    }

    pub(crate) fn text(content_type: &'static str, text: String) -> Self {
        Self { content_type, body: text.into_bytes() }
    }
}

/// Error response: a status, and a message in the JSON field `error`.
#[derive(Debug)]
pub struct HttpError {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
}

impl HttpError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    /// Creates an error for an invalid request (400).
    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// Creates an error for a request beyond a limit (413).
    #[must_use]
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    }

    /// Creates an error for a busy server, which the client may retry (503).
    #[must_use]
    pub fn busy(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
    }

    /// Creates an error of the server itself (500).
    #[must_use]
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    /// Puts the start of a text in front of the message, for a request with several texts.
    pub(crate) fn about(self, text: &str) -> Self {
        let start: String = text.chars().take(QUOTED_CHARS).collect();
        Self { message: format!("{start:?}: {}", self.message), ..self }
    }
}

/// Pool for work that occupies a processor, with as many tasks at a time as processors.
#[derive(Clone)]
pub(crate) struct BlockingPool {
    processors: Arc<Semaphore>,
    time: Duration,
}

impl BlockingPool {
    /// Creates a pool whose tasks fail after `time`, waiting for a processor included.
    pub(crate) fn new(time: Duration) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self { processors: Arc::new(Semaphore::new(processors)), time }
    }

    /// Runs `work` on a processor.
    ///
    /// # Errors
    /// If `work` fails, or takes too long. It then runs to its end, and occupies its processor until
    /// then.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, HttpError> + Send + 'static,
    ) -> Result<T, HttpError> {
        timeout(self.time, self.run_unbounded(work)).await.map_err(|_| {
            HttpError::busy(format!("this took longer than {} s", self.time.as_secs_f64()))
        })?
    }

    async fn run_unbounded<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, HttpError> + Send + 'static,
    ) -> Result<T, HttpError> {
        let processor =
            self.processors.clone().acquire_owned().await.expect("the semaphore is never closed");
        let task = tokio::task::spawn_blocking(move || {
            let result = work();
            drop(processor);
            result
        });
        task.await.map_err(|error| HttpError::internal(error.to_string()))?
    }
}

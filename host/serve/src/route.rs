//! What a server answers: a method and a path, and what becomes of a request's body.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// A request's body → the answer, or why there is none.
type Handler = Box<dyn Fn(Bytes) -> Answering + Send + Sync>;
type Answering = Pin<Box<dyn Future<Output = Result<Reply, Refusal>> + Send>>;

/// One thing that a server does.
pub struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    /// Longest body.
    pub(crate) body_bytes: usize,
    pub(crate) handler: Handler,
}

impl Route {
    /// Answers a GET from what is known anyway.
    pub fn get(
        path: &'static str,
        answer: impl Fn() -> Result<Reply, Refusal> + Clone + Send + Sync + 'static,
    ) -> Self {
        Self::new(Method::GET, path, 0, move |_| {
            let answer = answer.clone();
            async move { answer() }
        })
    }

    /// Answers a POST whose body has at most so many bytes.
    pub fn post<A>(
        path: &'static str,
        body_bytes: usize,
        answer: impl Fn(Bytes) -> A + Send + Sync + 'static,
    ) -> Self
    where
        A: Future<Output = Result<Reply, Refusal>> + Send + 'static,
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
        A: Future<Output = Result<Reply, Refusal>> + Send + 'static,
    {
        let handler: Handler = Box::new(move |body| Box::pin(answer(body)));
        Self { method, path, body_bytes, handler }
    }
}

/// What a client gets, with status 200.
pub struct Reply {
    pub(crate) content_type: &'static str,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// A value as JSON.
    ///
    /// # Panics
    /// Where serde cannot write it: a map with keys that are no text.
    #[must_use]
    pub fn json<T: Serialize>(value: &T) -> Self {
        Self {
            content_type: "application/json",
            body: serde_json::to_vec(value).expect("answers are plain JSON"),
        }
    }

    pub(crate) fn text(content_type: &'static str, text: String) -> Self {
        Self { content_type, body: text.into_bytes() }
    }
}

/// Why there is no answer: a status, and `{"error": …}` for people.
#[derive(Debug)]
pub struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    /// The request is at fault.
    #[must_use]
    pub fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// The request asks for more than a limit allows.
    #[must_use]
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    }

    /// The server is busy; the client may ask again later.
    #[must_use]
    pub fn busy(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
    }

    /// The same, and what it is about: one text of several.
    pub(crate) fn about(self, text: &str) -> Self {
        const SHOWN: usize = 120;
        let start: String = text.chars().take(SHOWN).collect();
        Self { message: format!("{start:?}: {}", self.message), ..self }
    }

    /// We are at fault.
    #[must_use]
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }
}

/// Work that occupies a processor: no more of it runs at a time than there are processors.
#[derive(Clone)]
pub(crate) struct Blocking {
    processors: Arc<Semaphore>,
    time: Duration,
}

impl Blocking {
    /// Work that is given up after `time`, waiting for a processor included.
    pub(crate) fn within(time: Duration) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self { processors: Arc::new(Semaphore::new(processors)), time }
    }

    /// Does it.
    ///
    /// # Errors
    /// Its own, or that it took too long. It then runs to its end, and keeps its processor until
    /// then.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let done = async {
            let processor = self
                .processors
                .clone()
                .acquire_owned()
                .await
                .expect("the semaphore is never closed");
            let work = tokio::task::spawn_blocking(move || {
                let done = work();
                drop(processor);
                done
            });
            work.await.map_err(|error| Refusal::failed(error.to_string()))?
        };
        let too_late =
            |_| Refusal::busy(format!("this took longer than {} s", self.time.as_secs_f64()));
        timeout(self.time, done).await.map_err(too_late)?
    }
}

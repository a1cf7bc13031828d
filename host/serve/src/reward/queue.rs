//! The queue of completions to score, with its limits.

use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use corver_core::{GivenTriplets, RewardSettings, ScoredCompletion};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use super::metrics::ScoreMetrics;
use super::worker::{ScoreFn, ScoreJob, ScoreWorker, Task};
use super::{SubmittedCompletion, parse_request, run_blocking};
use crate::server::zero_limit;
use crate::{Health, HttpError, HttpReply, Metrics, Route, ServeError};

const FULL: &str = "the queue is full";
const ENDED: &str = "the thread that scores has ended; restart the server";

/// Limits on the size of requests and of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// Completions without an answer, queued or being scored.
    pub completions: usize,
    /// Completions scored together, and completions of one request; 1 or more.
    pub batch: usize,
    /// Bytes of a request's body.
    pub body_bytes: usize,
    /// Bytes of a completion.
    pub completion_bytes: usize,
    /// Sentences of a completion: each is extracted and counted.
    pub sentences: usize,
    /// Tokens of a completion.
    pub tokens: usize,
    /// Longest time for a request, waiting included. Shorter than the 180 s after which OpenRLHF's
    /// client repeats it.
    pub time: Duration,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self {
            completions: 4_096,
            batch: 512,
            body_bytes: 8 << 20,
            completion_bytes: 128 << 10,
            sentences: 512,
            tokens: 32_768,
            time: Duration::from_secs(170),
        }
    }
}

/// Queue in front of the thread that scores, which owns a scorer `S` and scores the queued requests
/// of all clients together.
pub struct Queue<S> {
    tasks: mpsc::UnboundedSender<Task<S>>,
    /// Disconnected when the thread has ended.
    ended: Mutex<std::sync::mpsc::Receiver<()>>,
    /// A permit for each completion without an answer. It bounds `tasks`.
    space: Arc<Semaphore>,
    pub(super) limits: QueueLimits,
    pub(super) settings: RewardSettings,
    metrics: ScoreMetrics,
}

/// Behaviour of a request if the queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WhenFull {
    /// The request gets 503 immediately.
    Refuse,
    /// The request waits, up to its time limit.
    Wait,
}

/// Error of a request to the queue.
#[derive(Debug)]
pub(super) enum QueueError {
    /// This request failed; others may succeed.
    Request(HttpError),
    /// Every request will fail: the thread that scores has ended.
    Ended,
}

impl From<HttpError> for QueueError {
    fn from(error: HttpError) -> Self {
        Self::Request(error)
    }
}

impl From<QueueError> for HttpError {
    fn from(error: QueueError) -> Self {
        match error {
            QueueError::Request(error) => error,
            QueueError::Ended => Self::internal(ENDED),
        }
    }
}

impl<S: Send + 'static> Queue<S> {
    /// Starts the thread that scores. `score` scores a batch; `settings` are those of the scorer.
    ///
    /// # Errors
    /// If a limit is 0, the queue has no room for a batch, or the system denies a thread.
    pub fn start(
        scorer: S,
        score: ScoreFn<S>,
        settings: RewardSettings,
        limits: QueueLimits,
        metrics: &mut Metrics,
    ) -> Result<Arc<Self>, ServeError> {
        if limits.batch == 0 {
            return Err(zero_limit("batch"));
        }
        if limits.completions < limits.batch {
            return Err(ServeError::InvalidSettings(format!(
                "the queue has room for {} completions, and a batch may have {}; it must have room \
                 for a batch",
                limits.completions, limits.batch
            )));
        }
        let score_metrics = ScoreMetrics::register(metrics);
        let (tasks, receiver) = mpsc::unbounded_channel();
        let worker =
            ScoreWorker { scorer, score, max_batch: limits.batch, metrics: score_metrics.clone() };
        let (alive, ended) = std::sync::mpsc::channel();
        std::thread::Builder::new()
            .name("score".to_owned())
            .spawn(move || {
                let _alive = alive; // dropped when the thread ends, also by a panic
                worker.run(receiver);
            })
            .map_err(|source| ServeError::Run { action: "start the thread that scores", source })?;
        Ok(Arc::new(Self {
            tasks,
            ended: Mutex::new(ended),
            space: Arc::new(Semaphore::new(limits.completions.min(Semaphore::MAX_PERMITS))),
            limits,
            settings,
            metrics: score_metrics,
        }))
    }

    /// Returns the condition of the queue and its thread.
    #[must_use]
    pub fn health(&self) -> Health {
        if self.tasks.is_closed() {
            Health::Broken(ENDED)
        } else if self.space.available_permits() == 0 {
            Health::Busy(FULL)
        } else {
            Health::Ready
        }
    }

    /// Ends the thread after its current batch, and waits for that up to `max_wait`. Queued requests
    /// are dropped. A process that exits while the thread runs a library's code may crash.
    pub fn end(&self, max_wait: Duration) {
        let _ = self.tasks.send(Task::End); // fails if the thread has ended
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.recv_timeout(max_wait) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("a batch without a client is broken off");
        }
    }

    /// Runs `work` on the thread that scores, between two batches.
    async fn run_exclusive<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut S) -> Result<T, HttpError> + Send + 'static,
    ) -> Result<T, HttpError> {
        let space = self.reserve(1, WhenFull::Refuse).await?;
        let (answer, answered) = oneshot::channel();
        let task = Task::RunExclusive(Box::new(move |scorer: &mut S| {
            // A client that has left needs no answer.
            if !answer.is_closed() {
                let _ = answer.send(work(scorer));
            }
            drop(space);
        }));
        let result = self.in_time(async {
            self.send(task)?;
            Ok(answered.await.map_err(|_| QueueError::Ended)??)
        });
        Ok(result.await?)
    }

    /// Refuses a request of more completions than a batch. It comes before any work on them.
    pub(super) fn check_number(&self, completions: usize) -> Result<(), HttpError> {
        let limit = self.limits.batch;
        if completions > limit {
            return Err(HttpError::too_large(format!(
                "{completions} completions; at most {limit} are accepted at a time"
            )));
        }
        Ok(())
    }

    /// Scores completions with these triplets, or with the extractor's, and returns them in order.
    pub(super) async fn score(
        &self,
        completions: Vec<SubmittedCompletion>,
        triplets: Option<GivenTriplets>,
        when_full: WhenFull,
    ) -> Result<Vec<ScoredCompletion>, QueueError> {
        let number = completions.len();
        self.check_number(number)?;
        let result = self.in_time(async {
            let space = self.reserve(number, when_full).await?;
            let (answer, answered) = oneshot::channel();
            let queued = Some(self.metrics.enqueue(number));
            let job = ScoreJob { completions, triplets, answer, queued, _space: space };
            self.send(Task::Score(job))?;
            let scored = answered.await.map_err(|_| QueueError::Ended)?;
            Ok(scored.map_err(HttpError::internal)?)
        });
        result.await
    }

    async fn reserve(
        &self,
        completions: usize,
        when_full: WhenFull,
    ) -> Result<OwnedSemaphorePermit, HttpError> {
        let permits = u32::try_from(completions).unwrap_or(u32::MAX);
        let space = self.space.clone();
        match when_full {
            WhenFull::Refuse => {
                space.try_acquire_many_owned(permits).map_err(|_| HttpError::busy(FULL))
            }
            WhenFull::Wait => {
                Ok(space.acquire_many_owned(permits).await.expect("the semaphore is never closed"))
            }
        }
    }

    fn send(&self, task: Task<S>) -> Result<(), QueueError> {
        self.tasks.send(task).map_err(|_| QueueError::Ended)
    }

    async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, QueueError>>,
    ) -> Result<T, QueueError> {
        let time = self.limits.time;
        timeout(time, work)
            .await
            .map_err(|_| HttpError::busy(format!("no answer within {} s", time.as_secs_f64())))?
    }
}

/// Returns the route `POST path` for JSON requests that are not batched: `answer` runs on the thread
/// that scores, between two batches. `form` describes a valid request in error messages.
pub fn unbatched_route<S, Q, A>(
    queue: &Arc<Queue<S>>,
    path: &'static str,
    body_bytes: usize,
    form: &'static str,
    answer: fn(&mut S, Q) -> Result<A, HttpError>,
) -> Route
where
    S: Send + 'static,
    Q: DeserializeOwned + Send + 'static,
    A: Serialize + Send + 'static,
{
    let queue = queue.clone();
    Route::post(path, body_bytes, move |body| {
        let queue = queue.clone();
        async move {
            let request: Q = parse_request(body, form).await?;
            let reply = queue.run_exclusive(move |scorer| answer(scorer, request)).await?;
            run_blocking(move || HttpReply::json(&reply)).await
        }
    })
}

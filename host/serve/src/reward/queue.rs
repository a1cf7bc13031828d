//! What waits to be scored, and how much of it there may be.

use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use corver_core::{RewardSettings, ScoredCompletion};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use super::metrics::ScoreMetrics;
use super::worker::{Job, ScoreFn, Task, Worker};
use super::{Completion, compute, read};
use crate::server::limit_of_0;
use crate::{Health, Metrics, Refusal, Reply, Route, ServeError};

/// What may wait, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// Completions that have no answer yet.
    pub completions: usize,
    /// Completions scored together, and completions of one request.
    pub batch: usize,
    /// Bytes of a request's body.
    pub body_bytes: usize,
    /// Bytes of a completion.
    pub completion_bytes: usize,
    /// Sentences of a completion: each is extracted and counted.
    pub sentences: usize,
    /// Tokens of a completion.
    pub tokens: usize,
    /// How long a request may take, waiting included. Shorter than the 180 s after which OpenRLHF's
    /// client asks again.
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

/// Scores what several clients send, all that is there together. `S` is whatever scores; one thread
/// owns it.
pub struct Queue<S> {
    tasks: mpsc::UnboundedSender<Task<S>>,
    /// Disconnected once the thread has ended.
    ended: Mutex<std::sync::mpsc::Receiver<()>>,
    /// A permit for each completion that has no answer yet: they bound `tasks`.
    places: Arc<Semaphore>,
    pub(super) limits: QueueLimits,
    pub(super) settings: RewardSettings,
    metrics: ScoreMetrics,
}

/// What a request does where the queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WhenFull {
    /// It gets 503 at once.
    Refuse,
    /// It waits for as long as a request may take.
    Wait,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// To this request, now.
    Refused(Refusal),
    /// To any, ever again: the thread that scores has ended.
    Ended,
}

impl From<Refusal> for Unanswered {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Unanswered> for Refusal {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Refused(refusal) => refusal,
            Unanswered::Ended => Self::failed(ENDED),
        }
    }
}

impl<S: Send + 'static> Queue<S> {
    /// Starts the thread that scores. `score` is asked for all completions of a batch; `settings`
    /// are those that it scores by.
    ///
    /// # Errors
    /// Where a limit is 0, the queue has no room for a batch, or the system gives no thread.
    pub fn start(
        scorer: S,
        score: ScoreFn<S>,
        settings: RewardSettings,
        limits: QueueLimits,
        metrics: &mut Metrics,
    ) -> Result<Arc<Self>, ServeError> {
        if limits.batch == 0 {
            return Err(limit_of_0("batch"));
        }
        if limits.completions < limits.batch {
            return Err(ServeError::InvalidSettings(format!(
                "the queue has room for {} completions, and a batch may have {}; it must have room \
                 for a batch",
                limits.completions, limits.batch
            )));
        }
        let metrics = ScoreMetrics::register(metrics);
        let (tasks, receiver) = mpsc::unbounded_channel();
        let worker = Worker { scorer, score, max_batch: limits.batch, metrics: metrics.clone() };
        let thread = std::thread::Builder::new().name("score".to_owned());
        let (working, ended) = std::sync::mpsc::channel();
        let started = thread.spawn(move || {
            let _working = working; // until it is dropped
            worker.run(receiver);
        });
        started
            .map_err(|source| ServeError::Run { action: "start the thread that scores", source })?;
        let places = Arc::new(Semaphore::new(limits.completions.min(Semaphore::MAX_PERMITS)));
        Ok(Arc::new(Self { tasks, ended: Mutex::new(ended), places, limits, settings, metrics }))
    }

    /// How it is.
    #[must_use]
    pub fn health(&self) -> Health {
        match self.places.available_permits() {
            _ if self.tasks.is_closed() => Health::Broken(ENDED),
            0 => Health::Busy(FULL),
            _ => Health::Ready,
        }
    }

    /// Ends the thread after what it is doing, and waits for that no longer than `patience`. What
    /// is queued is dropped. A process that ends while the thread is in a library's code may break.
    pub fn end(&self, patience: Duration) {
        let _ = self.tasks.send(Task::End); // it may have ended
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("a batch that nobody waits for is broken off");
        }
    }

    /// Has `work` done between two batches, by the thread that scores.
    async fn alone<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut S) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let place = self.places(1, WhenFull::Refuse).await?;
        let (answer, answered) = oneshot::channel();
        let task = move |scorer: &mut S| {
            if !answer.is_closed() {
                let _ = answer.send(work(scorer)); // a client that has left needs no answer
            }
            drop(place);
        };
        let done = async {
            self.send(Task::Alone(Box::new(task)))?;
            Ok(answered.await.map_err(|_| Unanswered::Ended)??)
        };
        Ok(self.in_time(done).await?)
    }

    /// What completions earned, in order.
    pub(super) async fn score(
        &self,
        completions: Vec<Completion>,
        when_full: WhenFull,
    ) -> Result<Vec<ScoredCompletion>, Unanswered> {
        let (asked, most) = (completions.len(), self.limits.batch);
        if asked > most {
            return Err(Refusal::too_large(format!(
                "{asked} completions; at most {most} are taken at a time"
            ))
            .into());
        }
        let scored = async {
            let places = self.places(asked, when_full).await?;
            let (answer, answered) = oneshot::channel();
            let waiting = Some(self.metrics.waiting(asked));
            self.send(Task::Score(Job { completions, answer, waiting, _places: places }))?;
            Ok(answered.await.map_err(|_| Unanswered::Ended)?.map_err(Refusal::failed)?)
        };
        self.in_time(scored).await
    }

    async fn places(
        &self,
        completions: usize,
        when_full: WhenFull,
    ) -> Result<OwnedSemaphorePermit, Refusal> {
        let permits = u32::try_from(completions).unwrap_or(u32::MAX);
        let places = self.places.clone();
        match when_full {
            WhenFull::Refuse => {
                places.try_acquire_many_owned(permits).map_err(|_| Refusal::busy(FULL))
            }
            WhenFull::Wait => {
                Ok(places.acquire_many_owned(permits).await.expect("the semaphore is never closed"))
            }
        }
    }

    fn send(&self, task: Task<S>) -> Result<(), Unanswered> {
        self.tasks.send(task).map_err(|_| Unanswered::Ended)
    }

    async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, Unanswered>>,
    ) -> Result<T, Unanswered> {
        let late =
            |_| Refusal::busy(format!("no answer within {} s", self.limits.time.as_secs_f64()));
        timeout(self.limits.time, work).await.map_err(late)?
    }
}

const FULL: &str = "the queue is full";
const ENDED: &str = "the thread that scores has ended; restart the server";

/// `POST path`, for work that is not batched: JSON, answered between two batches by the thread that
/// scores. `form` is what the request looks like, for whoever sends another.
pub fn between_batches<S, Q, A>(
    queue: &Arc<Queue<S>>,
    path: &'static str,
    body_bytes: usize,
    form: &'static str,
    answer: fn(&mut S, Q) -> Result<A, Refusal>,
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
            let request: Q = read(body, form).await?;
            let answer = queue.alone(move |scorer| answer(scorer, request)).await?;
            compute(move || Reply::json(&answer)).await
        }
    })
}

//! The thread that scores: it takes all queued requests, up to a batch, and never waits for more.

use corver_core::{
    GivenTriplets, Question, Rollout, Scored, ScoredCompletion, StepError, error_chain,
};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::SubmittedCompletion;
use super::metrics::{QueuedGuard, ScoreMetrics};

/// Bytes and tokens of a batch of several requests; each takes 24 bytes while it is scored.
const BATCH_SIZE: usize = 8 << 20;

/// Scores completions with `S`, and with these triplets or the extractor's; `question` of each is an
/// index into the questions.
pub type ScoreFn<S> =
    fn(&mut S, &[Rollout], &[Question], Option<&GivenTriplets>) -> Result<Scored, StepError>;

pub(super) enum Task<S> {
    /// Scores a request, in a batch with others.
    Score(ScoreJob),
    /// Runs other work between two batches.
    RunExclusive(Box<dyn FnOnce(&mut S) + Send>),
    /// Ends the thread; later tasks are dropped.
    End,
}

/// Completions of one request, to be scored.
pub(super) struct ScoreJob {
    pub(super) completions: Vec<SubmittedCompletion>,
    /// Triplets of all sentences. `None`: the extractor reads them.
    pub(super) triplets: Option<GivenTriplets>,
    pub(super) answer: oneshot::Sender<Result<Vec<ScoredCompletion>, String>>,
    /// `None` after the job has left the queue.
    pub(super) queued: Option<QueuedGuard>,
    /// Space in the queue, held until the answer.
    pub(super) _space: OwnedSemaphorePermit,
}

pub(super) struct ScoreWorker<S> {
    pub(super) scorer: S,
    pub(super) score: ScoreFn<S>,
    pub(super) max_batch: usize,
    pub(super) metrics: ScoreMetrics,
}

impl<S> ScoreWorker<S> {
    /// Works until [`Task::End`], or until all senders are gone.
    pub(super) fn run(mut self, mut tasks: UnboundedReceiver<Task<S>>) {
        // A task that was received while a batch was collected, and does not belong to it.
        let mut next = None;
        while let Some(task) = next.take().or_else(|| tasks.blocking_recv()) {
            match task {
                Task::End => return,
                Task::RunExclusive(work) => work(&mut self.scorer),
                Task::Score(first) => {
                    let mut batch = vec![first];
                    while next.is_none()
                        && let Ok(further) = tasks.try_recv()
                    {
                        match further {
                            Task::Score(job) if self.fits(&batch, &job) => batch.push(job),
                            other => next = Some(other),
                        }
                    }
                    self.answer(batch);
                }
            }
        }
    }

    fn fits(&self, batch: &[ScoreJob], job: &ScoreJob) -> bool {
        // The triplets of a request are those of its own sentences only.
        if batch.iter().chain([job]).any(|job| job.triplets.is_some()) {
            return false;
        }
        let mut number = 0;
        let mut size = 0;
        for completion in batch.iter().chain([job]).flat_map(|job| &job.completions) {
            number += 1;
            size += completion.size();
        }
        number <= self.max_batch && size <= BATCH_SIZE
    }

    /// Scores requests together. If that fails, scores them one by one, so that only the one at
    /// fault gets an error.
    fn answer(&mut self, mut batch: Vec<ScoreJob>) {
        batch.retain(ScoreJob::is_awaited);
        for job in &mut batch {
            job.queued = None;
        }
        match self.score(&batch) {
            Ok(scored) => {
                for (job, completions) in batch.into_iter().zip(scored) {
                    job.finish(Ok(completions));
                }
            }
            Err(error) if batch.len() == 1 => {
                for job in batch {
                    self.fail(job, &error);
                }
            }
            Err(error) => {
                let requests = batch.len();
                tracing::debug!(%error, requests, "a batch failed, and is scored one by one");
                for job in batch.into_iter().filter(ScoreJob::is_awaited) {
                    match self.score(std::slice::from_ref(&job)) {
                        Ok(mut scored) => job.finish(Ok(scored.pop().unwrap_or_default())),
                        Err(own_error) => self.fail(job, &own_error),
                    }
                }
            }
        }
    }

    /// Returns the scored completions of each request.
    fn score(&mut self, jobs: &[ScoreJob]) -> Result<Vec<Vec<ScoredCompletion>>, String> {
        let mut questions = Vec::new();
        let mut rollouts = Vec::new();
        for (index, completion) in jobs.iter().flat_map(|job| &job.completions).enumerate() {
            questions.push(completion.question.clone());
            rollouts.push(completion.rollout(index));
        }
        if rollouts.is_empty() {
            return Ok(jobs.iter().map(|_| Vec::new()).collect());
        }
        let given = jobs.iter().find_map(|job| job.triplets.as_ref());
        let scored = (self.score)(&mut self.scorer, &rollouts, &questions, given)
            .map_err(|error| error_chain(&error))?;
        for completion in &scored.completions {
            if completion.returns.iter().any(|value| !value.is_finite()) {
                return Err("a return is not a finite number".to_owned());
            }
        }
        self.metrics.record(&scored);
        let mut completions = scored.completions.into_iter();
        let mut by_job = Vec::with_capacity(jobs.len());
        for job in jobs {
            by_job.push(completions.by_ref().take(job.completions.len()).collect());
        }
        Ok(by_job)
    }

    fn fail(&self, job: ScoreJob, error: &str) {
        tracing::warn!(error, "a request could not be scored");
        self.metrics.failures.inc();
        job.finish(Err(error.to_owned()));
    }
}

impl ScoreJob {
    /// True if the client is still connected.
    fn is_awaited(&self) -> bool {
        !self.answer.is_closed()
    }

    /// Answers, and frees the space in the queue.
    fn finish(self, result: Result<Vec<ScoredCompletion>, String>) {
        let _ = self.answer.send(result); // fails if the client has left
    }
}

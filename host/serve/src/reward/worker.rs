//! The thread that scores: it takes all that waits, up to a batch, and never waits for more.

use corver_core::{Question, Rollout, Scored, ScoredCompletion, StepError, error_chain};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::Completion;
use super::metrics::{ScoreMetrics, Waiting};

/// Bytes and tokens of a batch of several requests: each takes 24 bytes while it is scored.
const BATCH_SIZE: usize = 8 << 20;

/// Scores completions with `S`; `question` of each is an index into the questions.
pub type ScoreFn<S> = fn(&mut S, &[Rollout], &[Question]) -> Result<Scored, StepError>;

pub(super) enum Task<S> {
    Score(Job),
    /// Something else.
    Alone(Box<dyn FnOnce(&mut S) + Send>),
    /// The last one.
    End,
}

/// One request.
pub(super) struct Job {
    pub(super) completions: Vec<Completion>,
    pub(super) answer: oneshot::Sender<Result<Vec<ScoredCompletion>, String>>,
    /// Until it is taken out of the queue.
    pub(super) waiting: Option<Waiting>,
    /// Until it is answered.
    pub(super) _places: OwnedSemaphorePermit,
}

pub(super) struct Worker<S> {
    pub(super) scorer: S,
    pub(super) score: ScoreFn<S>,
    pub(super) max_batch: usize,
    pub(super) metrics: ScoreMetrics,
}

impl<S> Worker<S> {
    /// Works until it is told to end, or nobody can ask any more.
    pub(super) fn run(mut self, mut tasks: UnboundedReceiver<Task<S>>) {
        let mut next = None;
        while let Some(task) = next.take().or_else(|| tasks.blocking_recv()) {
            match task {
                Task::End => return,
                Task::Alone(work) => work(&mut self.scorer),
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

    fn fits(&self, batch: &[Job], job: &Job) -> bool {
        let all = || batch.iter().chain([job]).flat_map(|job| &job.completions);
        all().count() <= self.max_batch && all().map(Completion::size).sum::<usize>() <= BATCH_SIZE
    }

    /// Scores requests together. Where that fails, one by one, so that only the one at fault gets
    /// an error.
    fn answer(&mut self, mut batch: Vec<Job>) {
        batch.retain(Job::is_awaited);
        batch.iter_mut().for_each(|job| job.waiting = None);
        match self.score(&batch) {
            Ok(all) => batch.into_iter().zip(all).for_each(|(job, paid)| job.end(Ok(paid))),
            Err(error) if batch.len() == 1 => {
                batch.into_iter().for_each(|job| self.fail(job, &error))
            }
            Err(error) => {
                tracing::debug!(%error, requests = batch.len(), "a batch failed, and is scored one by one");
                for job in batch.into_iter().filter(Job::is_awaited) {
                    match self.score(std::slice::from_ref(&job)) {
                        Ok(mut paid) => job.end(Ok(paid.pop().unwrap_or_default())),
                        Err(own_error) => self.fail(job, &own_error),
                    }
                }
            }
        }
    }

    /// What the completions of each request earned.
    fn score(&mut self, jobs: &[Job]) -> Result<Vec<Vec<ScoredCompletion>>, String> {
        let all = || jobs.iter().flat_map(|job| &job.completions);
        let questions: Vec<Question> = all().map(|one| one.question.clone()).collect();
        let rollouts: Vec<Rollout> =
            all().enumerate().map(|(place, one)| one.rollout(place)).collect();
        if rollouts.is_empty() {
            return Ok(jobs.iter().map(|_| Vec::new()).collect());
        }
        let scored = (self.score)(&mut self.scorer, &rollouts, &questions)
            .map_err(|error| error_chain(&error))?;
        for completion in &scored.completions {
            if completion.returns.iter().any(|value| !value.is_finite()) {
                return Err("a return is not a finite number".to_owned());
            }
        }
        self.metrics.scored(&scored);
        let mut completions = scored.completions.into_iter();
        let mut by_job = Vec::with_capacity(jobs.len());
        for job in jobs {
            by_job.push(completions.by_ref().take(job.completions.len()).collect());
        }
        Ok(by_job)
    }

    fn fail(&self, job: Job, error: &str) {
        tracing::warn!(error, "a request could not be scored");
        self.metrics.failures.inc();
        job.end(Err(error.to_owned()));
    }
}

impl Job {
    /// Whether its client is still there.
    fn is_awaited(&self) -> bool {
        !self.answer.is_closed()
    }

    /// Answers, and gives back its places in the queue.
    fn end(self, result: Result<Vec<ScoredCompletion>, String>) {
        let _ = self.answer.send(result); // its client may have left
    }
}

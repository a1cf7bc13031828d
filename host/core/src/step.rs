//! The training step: every stage, in order.

use std::panic::resume_unwind;
use std::sync::mpsc;
use std::thread;

use tracing::{Span, info_span};

use crate::score::{Scored, Scorers, pay, read_all};
use crate::stage::{StageSeconds, StepError, timed};
use crate::{
    Advantages, Estimator, Learner, Question, RewardSettings, Rollout, Sampler, Sampling, Tallies,
    Trace, UpdateReport,
};

/// How a step samples, rewards and normalises.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StepSettings {
    /// Rollouts.
    pub sampling: Sampling,
    /// Returns.
    pub rewards: RewardSettings,
    /// Advantages.
    pub estimator: Estimator,
}

/// What one step did.
pub struct StepReport {
    /// What was sampled.
    pub rollouts: Vec<Rollout>,
    /// Why each earned what it earned.
    pub traces: Vec<Trace>,
    /// What each token was worth.
    pub advantages: Advantages,
    /// What the rules asked.
    pub asked: Tallies,
    /// What the optimiser did.
    pub update: UpdateReport,
    /// Where the time went.
    pub seconds: StageSeconds,
}

/// One training step on `questions`: sample, and extract triplets from what has ended meanwhile;
/// score while the update is prepared; make advantages of the returns; update. `seed` decides every
/// draw of the step.
///
/// # Errors
/// Where a part fails; the policy is then unchanged.
pub fn step<P: Sampler + Learner + ?Sized>(
    policy: &mut P,
    scorers: &mut Scorers<'_, '_>,
    questions: &[Question],
    settings: &StepSettings,
    seed: u64,
) -> Result<StepReport, StepError> {
    let StepSettings { sampling, rewards, estimator } = settings;
    let (sender, ended) = mpsc::channel();
    let (sampler, extractor) = (&mut *policy, &mut *scorers.extractor);
    let sample = move || {
        // Nobody receives what has ended after an extraction that failed; the step then ends with
        // its error.
        let mut tell = |rollouts| drop(sender.send(rollouts));
        timed(info_span!("rollout"), || {
            sampler.sample_and_tell(questions, sampling, seed, &mut tell)
        })
    };
    let reads_triplets = scorers.sentence_scorer.reads_triplets();
    let read = move || read_all(&mut ended.iter(), extractor, rewards, reads_triplets);
    let (readings, (rollouts, rollout_seconds)) = at_once(read, sample);
    let (rollouts, (readings, extract_seconds)) =
        (rollouts.map_err(StepError::Rollout)?, readings?);

    let reward =
        || timed(info_span!("reward"), || pay(&rollouts, readings, questions, scorers, rewards));
    let prepare = || timed(info_span!("prepare"), || policy.prepare(&rollouts));
    let ((scored, reward_seconds), (prepared, prepare_seconds)) = at_once(reward, prepare);
    let Scored { returns, points, labels, traces, asked, mut seconds } = scored?;
    let values = prepared.map_err(StepError::Update)?;

    let advantages =
        estimator.advantages(&returns, &points, values.as_deref(), sampling.num_generations);
    let advantages = advantages
        .and_then(|made| estimator.with_signs(made, &labels))
        .map_err(StepError::Update)?;
    let (update, update_seconds) =
        timed(info_span!("update"), || policy.update(&rollouts, &advantages));
    let update = update.map_err(StepError::Update)?;
    seconds.rollout = rollout_seconds;
    (seconds.extract, seconds.reward) = (extract_seconds, extract_seconds + reward_seconds);
    (seconds.prepare, seconds.update) = (prepare_seconds, update_seconds);
    Ok(StepReport { rollouts, traces, advantages, asked, update, seconds })
}

/// Runs `here` in this thread and `there` in another, and waits for both.
fn at_once<A: Send, B>(there: impl FnOnce() -> A + Send, here: impl FnOnce() -> B) -> (A, B) {
    let span = Span::current();
    thread::scope(|scope| {
        let there = scope.spawn(|| span.in_scope(there));
        let here = here();
        (there.join().unwrap_or_else(|panic| resume_unwind(panic)), here)
    })
}

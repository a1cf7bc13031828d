//! The training step: every stage, in order.

use std::panic::resume_unwind;
use std::thread;

use tracing::Span;

use crate::score::{ExtractedCompletions, Extraction, compute_returns};
use crate::stage::{Stage, StageSeconds, StageTimer, StepError};
use crate::{
    BackendStats, Estimator, Learner, Question, ReturnStats, RewardSettings, Rollout, Sampling,
    ScoredCompletion, Scorers, TrainingBatch, UpdateReport,
};

/// Settings of a step.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StepSettings {
    /// Settings of the rollouts.
    pub sampling: Sampling,
    /// Weights and granularity of the rewards.
    pub rewards: RewardSettings,
    /// Estimator of the advantages.
    pub estimator: Estimator,
}

/// Result of a step.
pub struct StepReport {
    /// Sampled completions, in question order.
    pub rollouts: Vec<Rollout>,
    /// Return of each token of each completion, and its trace.
    pub completions: Vec<ScoredCompletion>,
    /// Mean return and its spread.
    pub returns: ReturnStats,
    /// Requests of the rules.
    pub backend_stats: BackendStats,
    /// Number of sentences whose extractor reply was not understood.
    pub not_understood: usize,
    /// Report of the optimiser.
    pub update: UpdateReport,
    /// Duration of each stage.
    pub seconds: StageSeconds,
}

/// Takes one training step on `questions`. `seed` decides every draw.
///
/// Triplets are extracted while other completions are sampled, and the update is prepared while the
/// last ones are extracted and the rules score.
///
/// # Errors
/// If a part fails. The policy is then unchanged, unless it is [`StepError::Update`].
pub fn step<P: Learner + ?Sized>(
    policy: &mut P,
    scorers: &mut Scorers<'_, '_>,
    questions: &[Question],
    settings: &StepSettings,
    seed: u64,
) -> Result<StepReport, StepError> {
    let StepSettings { sampling, rewards, estimator } = settings;
    let timer = StageTimer::default();

    let (extractor, mut rules) = scorers.separate_extractor();
    let reads_triplets = rules.sentence_scorer.reads_triplets();
    let mut extraction = Extraction::start(extractor, reads_triplets, questions, rewards);
    let rollouts = timer
        .time(Stage::Rollout, || {
            policy.sample(questions, sampling, seed, &mut |index, rollout| {
                extraction.push(index, rollout);
            })
        })
        .map_err(StepError::Rollout)?;

    let batch = TrainingBatch { questions, sampling, rollouts: &rollouts };
    let (scored, prepared) = join(
        || -> Result<_, StepError> {
            let ExtractedCompletions { splits, not_understood } =
                timer.time(Stage::Extract, || extraction.finish(rollouts.len()))?;
            let (completions, backend_stats) = timer.time(Stage::Reward, || {
                compute_returns(&rollouts, splits, questions, &mut rules, rewards, &timer)
            })?;
            Ok((completions, backend_stats, not_understood))
        },
        || timer.time(Stage::Prepare, || policy.prepare(&batch)),
    );
    let (completions, backend_stats, not_understood) = scored?;
    let values = prepared.map_err(StepError::Prepare)?;

    let signal = estimator
        .signal(&completions, values.as_deref(), sampling.num_generations)
        .map_err(StepError::Prepare)?;
    let update =
        timer.time(Stage::Update, || policy.update(&batch, &signal)).map_err(StepError::Update)?;

    let returns = estimator.return_stats(&completions, sampling.num_generations);
    let seconds = timer.seconds(backend_stats.seconds());
    Ok(StepReport {
        rollouts,
        completions,
        returns,
        backend_stats,
        not_understood,
        update,
        seconds,
    })
}

/// Runs `background` in another thread while `foreground` runs in this one, and returns the results
/// of both.
fn join<A: Send, B>(
    background: impl FnOnce() -> A + Send,
    foreground: impl FnOnce() -> B,
) -> (A, B) {
    let span = Span::current();
    thread::scope(|scope| {
        let running = scope.spawn(|| span.in_scope(background));
        let result = foreground();
        (running.join().unwrap_or_else(|panic| resume_unwind(panic)), result)
    })
}

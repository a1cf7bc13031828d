//! The stages of a step: how long each took, and in which one it stopped.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tracing::info_span;

use crate::BoxError;

/// Where a step stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// The policy could not be sampled.
    #[error("sampling completions")]
    Rollout(#[source] BoxError),
    /// The triplet model could not run.
    #[error("extracting triplets")]
    Extract(#[source] BoxError),
    /// The rule broke its contract, or the corpus failed under it.
    #[error("scoring sentences")]
    ScoreSentences(#[source] BoxError),
    /// The judge or the format check broke its contract.
    #[error("grading completions")]
    GradeResponses(#[source] BoxError),
    /// The optimiser step failed.
    #[error("updating the policy")]
    Update(#[source] BoxError),
}

/// Wall-clock seconds by stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct StageSeconds {
    /// Sampling.
    pub rollout: f64,
    /// Triplet extraction, without what ran while completions were sampled.
    pub extract: f64,
    /// Queries of rules: counts, and the other backends that the run grants.
    pub verify: f64,
    /// Rules, the judge and the format check, without their queries.
    pub rule: f64,
    /// The whole reward: extraction, queries and rules, and the returns.
    pub reward: f64,
    /// Work for the update that needs no reward, and runs beside it.
    pub prepare: f64,
    /// Loss, gradients and optimiser.
    pub update: f64,
}

/// A part of the step that is timed, in a tracing span of its name.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stage {
    Rollout,
    Extract,
    ScoreSentences,
    GradeResponses,
    Reward,
    Prepare,
    Update,
}

/// Adds up the seconds of the stages, which may run in several threads.
#[derive(Debug, Default)]
pub(crate) struct StageTimer(Mutex<StageSeconds>);

impl StageTimer {
    /// Runs a stage in its span, and adds its time.
    pub(crate) fn time<T>(&self, stage: Stage, work: impl FnOnce() -> T) -> T {
        let span = match stage {
            Stage::Rollout => info_span!("rollout"),
            Stage::Extract => info_span!("extract"),
            Stage::ScoreSentences => info_span!("score_sentences"),
            Stage::GradeResponses => info_span!("grade_responses"),
            Stage::Reward => info_span!("reward"),
            Stage::Prepare => info_span!("prepare"),
            Stage::Update => info_span!("update"),
        };
        let start = Instant::now();
        let result = span.in_scope(work);
        self.add(stage, start.elapsed().as_secs_f64());
        result
    }

    fn add(&self, stage: Stage, took: f64) {
        let mut seconds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match stage {
            Stage::Rollout => seconds.rollout += took,
            Stage::Extract => seconds.extract += took,
            Stage::ScoreSentences | Stage::GradeResponses => seconds.rule += took,
            Stage::Reward => seconds.reward += took,
            Stage::Prepare => seconds.prepare += took,
            Stage::Update => seconds.update += took,
        }
    }

    /// Returns the seconds of each stage; `queries` are those that rules waited for answers.
    pub(crate) fn seconds(&self, queries: f64) -> StageSeconds {
        let seconds = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        StageSeconds {
            verify: queries,
            rule: seconds.rule - queries,
            reward: seconds.extract + seconds.reward,
            ..seconds
        }
    }
}

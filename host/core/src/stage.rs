//! The stages of a step: their durations, and the error of the one that failed.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tracing::info_span;

use crate::BoxError;

/// Error of a step, by the stage that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// Sampling of the rollouts failed.
    #[error("sampling completions")]
    Rollout(#[source] BoxError),
    /// Extraction of triplets failed.
    #[error("extracting triplets")]
    Extract(#[source] BoxError),
    /// The sentence rule broke its contract, or a backend failed.
    #[error("scoring sentences")]
    ScoreSentences(#[source] BoxError),
    /// The answer judge or the format check broke its contract, or a backend failed.
    #[error("grading completions")]
    GradeResponses(#[source] BoxError),
    /// Reference log-probabilities, critic values or advantages failed; the policy is unchanged.
    #[error("preparing the update")]
    Prepare(#[source] BoxError),
    /// The update failed. It may have changed the policy.
    #[error("updating the policy")]
    Update(#[source] BoxError),
}

/// Wall-clock seconds by stage.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StageSeconds {
    /// Sampling of the rollouts.
    pub rollout: f64,
    /// Extraction of triplets, without the part that overlaps with sampling.
    pub extract: f64,
    /// Sentence rules, answer judge and format check, without their requests.
    pub rule: f64,
    /// The reward in total: extraction, requests, rules and returns.
    pub reward: f64,
    /// Part of the update that needs no reward, and runs concurrently with it.
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

    /// Returns the seconds of each stage; `requests` are those that rules waited for replies, which
    /// are not a rule's own.
    pub(crate) fn seconds(&self, requests: f64) -> StageSeconds {
        let seconds = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        StageSeconds {
            rule: seconds.rule - requests,
            reward: seconds.extract + seconds.reward,
            ..seconds
        }
    }
}

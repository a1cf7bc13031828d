//! The stages of a step: how long each took, and in which one it stopped.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use tracing::Span;

use crate::PartError;

/// Where a step stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// The policy could not be sampled.
    #[error("sampling completions")]
    Rollout(#[source] PartError),
    /// The triplet model could not run.
    #[error("extracting triplets")]
    Extract(#[source] PartError),
    /// The rule broke its contract, or the corpus failed under it.
    #[error("scoring sentences")]
    ScoreSentences(#[source] PartError),
    /// The judge or the format check broke its contract.
    #[error("grading completions")]
    GradeResponses(#[source] PartError),
    /// The optimiser step failed.
    #[error("updating the policy")]
    Update(#[source] PartError),
}

/// Wall-clock seconds by stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct StageSeconds {
    /// Sampling.
    pub rollout: f64,
    /// Triplet extraction, of which some may have run beside the sampling.
    pub extract: f64,
    /// What rules asked: counts, and what else the run grants.
    pub verify: f64,
    /// The rules themselves, judge and format among them.
    pub rule: f64,
    /// The whole reward: the three above, splitting, aligning, judge and format.
    pub reward: f64,
    /// What the update needs besides the reward, beside which it runs.
    pub prepare: f64,
    /// Loss, gradients and optimiser.
    pub update: f64,
}

/// Runs one stage within its span, and says how many seconds it took.
pub(crate) fn timed<T>(span: Span, stage: impl FnOnce() -> T) -> (T, f64) {
    let _entered = span.entered();
    let start = Instant::now();
    let done = stage();
    (done, start.elapsed().as_secs_f64())
}

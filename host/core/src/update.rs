//! Stage 9: rollouts and advantages → one optimiser step. [`crate::algorithm`] says which
//! algorithms there are.
use std::path::Path;

use serde::Serialize;

use crate::{BoxError, Question, Rollout, Sampler, Sampling, Signal};

/// What an update did; of several iterations, the last.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct UpdateReport {
    /// Of the policy: clipped surrogate plus the weighted KL term, or DPO's.
    pub loss: f64,
    /// k3 estimate against the reference, nats per token; `None` where nothing is compared with it.
    pub kl: Option<f64>,
    /// Global L2 norm before clipping.
    pub grad_norm: f64,
    /// The rate that this step used.
    pub learning_rate: f64,
    /// Mean entropy of the policy over the completion tokens, nats.
    pub entropy: f64,
    /// Share of tokens whose ratio was clipped from below while the advantage was negative.
    pub clip_ratio_low: f64,
    /// Share of tokens whose ratio was clipped from above while the advantage was positive.
    pub clip_ratio_high: f64,
    /// Of the first iteration; `None` where there was no token.
    pub mismatch: Option<Mismatch>,
    /// `None` where there is no critic.
    pub critic: Option<CriticReport>,
    /// `None` where nothing is learned from pairs.
    pub preference: Option<PreferenceReport>,
}

/// How well the critic expects what comes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CriticReport {
    /// Its loss.
    pub loss: f64,
    /// Share of tokens whose value was clipped.
    pub clip_ratio: f64,
    /// 1 − var(target − V) ⁄ var(target), of the values before the update: 1 where all is foreseen,
    /// 0 where nothing is.
    pub explained_variance: f64,
}

/// What DPO made of the pairs of a step.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PreferenceReport {
    /// Pairs: groups whose completions did not all earn the same.
    pub pairs: f64,
    /// Mean of β times the difference of the log-ratios, before the update.
    pub margin: f64,
    /// Share of pairs for which that is above 0.
    pub accuracy: f64,
}

/// How far the sampler was from the policy: log-probabilities noted while sampling (μ) against
/// those of the policy before the update (π), over the completion tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mismatch {
    /// Mean of |log π − log μ|, nats.
    pub difference_mean: f64,
    /// Its largest value.
    pub difference_max: f64,
    /// Smallest π ⁄ μ.
    pub ratio_min: f64,
    /// Mean π ⁄ μ.
    pub ratio_mean: f64,
    /// Largest π ⁄ μ, before [`corver_settings::LossSettings::importance_sampling_cap`].
    pub ratio_max: f64,
}

/// Rollouts of a step, with the questions and the sampling that they came from.
#[derive(Debug, Clone, Copy)]
pub struct TrainingBatch<'a> {
    /// Questions of the step.
    pub questions: &'a [Question],
    /// Settings that the rollouts were sampled with.
    pub sampling: &'a Sampling,
    /// Completions of the questions, in question order.
    pub rollouts: &'a [Rollout],
}

/// An answer to imitate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Demonstration {
    /// The question.
    pub question: String,
    /// The whole completion, tags included.
    pub completion: String,
}

/// A policy that learns.
pub trait Learner: Sampler {
    /// Sets the system prompt of all sampling and learning from now on; an empty one sends none.
    fn set_system_prompt(&mut self, prompt: &str);

    /// Computes what the update on this batch needs besides the signal. It runs beside the reward.
    /// Returns the critic's value of every token, `[B][T]`, if there is a critic.
    ///
    /// # Errors
    /// If the device fails.
    fn prepare(&mut self, batch: &TrainingBatch<'_>) -> Result<Option<Vec<Vec<f64>>>, BoxError> {
        let _ = batch;
        Ok(None)
    }

    /// Takes the optimiser steps of one training step.
    ///
    /// # Errors
    /// If the device fails or the loss is not finite; the iteration that meets it leaves the weights
    /// as they are.
    fn update(
        &mut self,
        batch: &TrainingBatch<'_>,
        signal: &Signal,
    ) -> Result<UpdateReport, BoxError>;

    /// Takes one supervised step towards these completions of their questions. The loss of the
    /// report is the mean of −log p over their tokens, nats.
    ///
    /// # Errors
    /// If the device fails or the loss is not finite; the weights are then as they were.
    fn imitate(&mut self, demonstrations: &[Demonstration]) -> Result<UpdateReport, BoxError>;

    /// Writes a checkpoint into `folder`, complete or not at all, and deletes all but the newest
    /// `keep`.
    ///
    /// # Errors
    /// If it cannot be written.
    fn save(&mut self, folder: &Path, keep: usize) -> Result<(), BoxError>;
}

//! Stage 9: rollouts and advantages → one optimiser step. Algorithms: [`crate::advantage`].

use std::path::Path;

use serde::Serialize;

use crate::{BoxError, Question, Rollout, Sampler, Sampling, Signal};

/// Result of an update. Of several iterations it is the last one's.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct UpdateReport {
    /// Loss of the policy: clipped surrogate plus the weighted KL term, or DPO's loss.
    pub loss: f64,
    /// KL divergence from the reference by the k3 estimate, nats per token. `None`: the loss has no KL
    /// term.
    pub kl: Option<f64>,
    /// Global L2 norm of the gradient before clipping.
    pub grad_norm: f64,
    /// Learning rate of this step.
    pub learning_rate: f64,
    /// Mean entropy of the policy over the completion tokens, nats.
    pub entropy: f64,
    /// Share of tokens whose ratio was clipped from below while the advantage was negative.
    pub clip_ratio_low: f64,
    /// Share of tokens whose ratio was clipped from above while the advantage was positive.
    pub clip_ratio_high: f64,
    /// Mismatch between sampler and policy in the first iteration. `None`: no token was trained on.
    pub mismatch: Option<Mismatch>,
    /// Report of the critic. `None`: there is no critic.
    pub critic: Option<CriticReport>,
    /// Report of the preference pairs. `None`: the algorithm does not learn from pairs.
    pub preference: Option<PreferenceReport>,
}

/// Loss and quality of the critic.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CriticReport {
    /// Loss of the value predictions.
    pub loss: f64,
    /// Share of tokens whose value was clipped.
    pub clip_ratio: f64,
    /// Explained variance of the values before the update, 1 − var(target − V) ⁄ var(target): 1 for a
    /// perfect critic, 0 for a constant one.
    pub explained_variance: f64,
}

/// Preference pairs of a step, for DPO.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PreferenceReport {
    /// Number of pairs: groups whose mean returns R_k differ.
    pub pairs: f64,
    /// Mean margin before the update: β times the difference of the log-ratios.
    pub margin: f64,
    /// Share of pairs with a margin above 0.
    pub accuracy: f64,
}

/// Distance between sampler and policy over the completion tokens: log-probabilities from sampling
/// (μ) against those of the policy before the update (π).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mismatch {
    /// Mean of |log π − log μ|, nats.
    pub difference_mean: f64,
    /// Largest |log π − log μ|, nats.
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

/// A completion to imitate in supervised fine-tuning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Demonstration {
    /// Text of the question.
    pub question: String,
    /// Text of the completion, tags included.
    pub completion: String,
}

/// A policy that can be trained.
pub trait Learner: Sampler {
    /// Sets the system prompt of all later sampling and learning; an empty one sends none.
    fn set_system_prompt(&mut self, prompt: &str);

    /// Computes the parts of the update on this batch that need no signal, concurrently with the
    /// reward. Returns the critic's value of every token, `[B][T]`, if there is a critic.
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

//! Stage 9: rollouts and advantages → one optimiser step.

use serde::{Deserialize, Serialize};

use crate::{Advantages, PartError, Rollout};

/// What one optimiser step did. Names are TRL's where TRL has one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct UpdateReport {
    /// Clipped surrogate plus the weighted KL term.
    pub loss: f64,
    /// k3 estimate against the base model, nats per token; `None` where β is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kl: Option<f64>,
    /// Global L2 norm before clipping.
    pub grad_norm: f64,
    /// The rate that this step used.
    pub learning_rate: f64,
    /// Mean entropy of the policy over the completion tokens, nats.
    pub entropy: f64,
    /// Share of tokens whose ratio was clipped from below while the advantage was negative.
    #[serde(rename = "clip_ratio/low_mean")]
    pub clip_ratio_low: f64,
    /// Share of tokens whose ratio was clipped from above while the advantage was positive.
    #[serde(rename = "clip_ratio/high_mean")]
    pub clip_ratio_high: f64,
}

/// The policy, as something to improve.
pub trait Learner {
    /// One GRPO update from the rollouts of a step.
    ///
    /// # Errors
    /// Where the device fails or the loss is not finite; the weights are then unchanged.
    fn update(&mut self, rollouts: &[Rollout], advantages: &Advantages) -> Result<UpdateReport, PartError>;
}

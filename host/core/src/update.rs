//! Stage 9: rollouts and advantages → one optimiser step. [`crate::algorithm`] says which
//! algorithms there are.

use crate::{Advantages, PartError, Rollout};

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

/// The policy, as something to improve.
pub trait Learner {
    /// May compute what the update on these rollouts needs besides their returns: it runs beside
    /// the reward, which computes those. A learner with a critic says what that expects of every
    /// token, `[B][T]`.
    ///
    /// # Errors
    /// Where the device fails.
    fn prepare(&mut self, rollouts: &[Rollout]) -> Result<Option<Vec<Vec<f64>>>, PartError> {
        let _ = rollouts;
        Ok(None)
    }

    /// One update from the rollouts of a step.
    ///
    /// # Errors
    /// Where the device fails or the loss is not finite; the iteration that meets it leaves the
    /// weights as they are.
    fn update(
        &mut self,
        rollouts: &[Rollout],
        advantages: &Advantages,
    ) -> Result<UpdateReport, PartError>;
}

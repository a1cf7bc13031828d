//! The GRPO loss and its relatives, with per-token advantages (TRL 0.23's definitions).
//!
//! The completion tokens of a batch form one flat list, so there is no padding to mask. The loss of a
//! token is
//!
//! ```text
//! −w·min(min(ρ, δ)·A, clip(ρ, 1−ε_low, 1+ε_high)·A) + β·k3,   ρ = exp(new − old),   k3 = exp(ref − new) − (ref − new) − 1
//! ```
//!
//! with w = 1, or min(exp(old − sampled), C) if an engine sampled (truncated importance sampling,
//! Yao et al. 2025; TRL's `vllm_importance_sampling_correction`).
//!
//! The loss of a batch is the sum of the token losses, each times the weight of its row
//! ([`row_weights`]). Weights are computed over the full step, so the losses of its micro-batches
//! add up: gradient accumulation gives the gradient of the full batch for every split.

use corver_core::{ImportanceLevel, LossSettings, LossType};
use tch::{Kind, Tensor};

use crate::error::Result;

/// A batch as flat lists of its n completion tokens. All tensors are on one device.
#[derive(Debug)]
pub struct LossInputs<'a> {
    /// `[n]` log-probabilities under the policy; gradients go here.
    pub new: &'a Tensor,
    /// `[n]` log-probabilities under the policy that sampled; `None`: the policy before this update.
    pub old: Option<&'a Tensor>,
    /// `[n]` correction w; `None`: 1.
    pub correction: Option<&'a Tensor>,
    /// `[n]` log-probabilities under the reference; required if β is above 0.
    pub reference: Option<&'a Tensor>,
    /// `[n]` advantage A of each token.
    pub advantages: &'a Tensor,
    /// `[n]` weight of each token ([`row_weights`]).
    pub weights: &'a Tensor,
    /// `[n]` i64, index of each token's row.
    pub rows: &'a Tensor,
    /// `[B]` tokens of each row.
    pub lengths: &'a Tensor,
}

/// The loss of a batch with its figures. These are sums, so that micro-batches add up.
#[derive(Debug)]
pub struct Loss {
    /// Scalar with a graph to [`LossInputs::new`].
    pub loss: Tensor,
    /// Sum of k3 over the tokens, nats; `None` if β is 0.
    pub kl_sum: Option<f64>,
    /// Number of tokens with a negative advantage whose ratio is below 1 − ε.
    pub clipped_low: f64,
    /// Number of tokens with a positive advantage whose ratio is above 1 + ε.
    pub clipped_high: f64,
}

impl Loss {
    /// Returns a loss whose figures are zero or absent.
    pub(crate) fn without_figures(loss: Tensor) -> Self {
        Self { loss, kl_sum: None, clipped_low: 0.0, clipped_high: 0.0 }
    }
}

/// Returns the weight of a token in each row of a step, whose completions have these `lengths`.
///
/// Empty completions count as rows. `tokens_in_step` is the divisor of `dapo`: the tokens of all
/// micro-batches of the optimiser step.
#[must_use]
pub fn row_weights(
    loss_type: LossType,
    lengths: &[usize],
    max_completion_length: usize,
    tokens_in_step: usize,
) -> Vec<f64> {
    let rows = lengths.len().max(1) as f64;
    let total: usize = lengths.iter().sum();
    let mut weights = Vec::with_capacity(lengths.len());
    for &length in lengths {
        weights.push(match loss_type {
            LossType::Grpo => 1.0 / (rows * length.max(1) as f64),
            LossType::Bnpo => 1.0 / total.max(1) as f64,
            LossType::DrGrpo => 1.0 / (rows * max_completion_length.max(1) as f64),
            LossType::Dapo => 1.0 / tokens_in_step.max(1) as f64,
        });
    }
    weights
}

/// Returns the weighted sum of the token losses.
///
/// # Errors
/// Fails if the shapes do not fit.
pub fn grpo_loss(settings: &LossSettings, inputs: &LossInputs<'_>) -> Result<Loss> {
    let LossInputs { new, advantages, .. } = *inputs;
    let old = inputs.old.map_or_else(|| new.f_detach(), |old| Ok(old.shallow_clone()))?;
    let mut log_ratio = new.f_sub(&old)?;
    if settings.importance_sampling_level == ImportanceLevel::Sequence {
        log_ratio = row_means(&log_ratio, inputs)?;
    }
    let low = 1.0 - settings.epsilon_low;
    let high = 1.0 + settings.epsilon_high;
    let ratio = log_ratio.f_exp()?;
    let clamped = ratio.f_clamp(low, high)?;
    let ratio = match settings.delta {
        Some(delta) => ratio.f_clamp_max(delta)?,
        None => ratio,
    };
    let mut token_loss =
        ratio.f_mul(advantages)?.f_minimum(&clamped.f_mul(advantages)?)?.f_neg()?;
    if let Some(correction) = inputs.correction {
        token_loss = token_loss.f_mul(correction)?;
    }
    let mut kl_sum = None;
    if let Some(reference) = inputs.reference.filter(|_| settings.beta != 0.0) {
        let gap = reference.f_sub(new)?;
        let k3 = gap.f_exp()?.f_sub(&gap)?.f_sub_scalar(1.0)?;
        token_loss = token_loss.f_add(&k3.f_mul_scalar(settings.beta)?)?;
        kl_sum = Some(k3.f_sum(Kind::Double)?.f_double_value(&[])?);
    }
    let is_clipped_low = ratio.f_lt(low)?.f_logical_and(&advantages.f_lt(0.0)?)?;
    let is_clipped_high = ratio.f_gt(high)?.f_logical_and(&advantages.f_gt(0.0)?)?;
    Ok(Loss {
        loss: token_loss.f_mul(inputs.weights)?.f_sum(token_loss.f_kind()?)?,
        kl_sum,
        clipped_low: is_clipped_low.f_sum(Kind::Double)?.f_double_value(&[])?,
        clipped_high: is_clipped_high.f_sum(Kind::Double)?.f_double_value(&[])?,
    })
}

/// Replaces each token's value by the mean of its row.
fn row_means(values: &Tensor, inputs: &LossInputs<'_>) -> Result<Tensor> {
    let lengths = inputs.lengths.f_to_kind(values.f_kind()?)?.f_clamp_min(1.0)?;
    let sums = lengths.f_zeros_like()?.f_index_add(0, inputs.rows, values)?;
    Ok(sums.f_div(&lengths)?.f_index_select(0, inputs.rows)?)
}

/// Returns the negative log-likelihood of demonstrations, the loss of SFT, from the `[n]`
/// log-probabilities of a batch's completion tokens; `weights` `[n]` are 1/N.
///
/// # Errors
/// Fails if the shapes do not fit.
pub fn imitation_loss(log_probs: &Tensor, weights: &Tensor) -> Result<Tensor> {
    Ok(log_probs.f_mul(weights)?.f_sum(log_probs.f_kind()?)?.f_neg()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_policy_loss_is_weighted_mean_advantage() {
        let new = Tensor::from_slice(&[-1.0f64, -2.0, -0.5]).set_requires_grad(true);
        let advantages = Tensor::from_slice(&[1.0f64, -2.0, 3.0]);
        let weights = Tensor::from_slice(&[0.25f64, 0.25, 0.5]); // rows of 2 and 1 tokens
        let rows = Tensor::from_slice(&[0i64, 0, 1]);
        let lengths = Tensor::from_slice(&[2i64, 1]);
        let settings = LossSettings { beta: 0.0, ..LossSettings::default() };
        let inputs = LossInputs {
            new: &new,
            old: None,
            correction: None,
            reference: None,
            advantages: &advantages,
            weights: &weights,
            rows: &rows,
            lengths: &lengths,
        };
        let loss = grpo_loss(&settings, &inputs).unwrap();
        assert!((loss.loss.double_value(&[]) - (-0.25 + 0.5 - 1.5)).abs() < 1e-12);
        let gradient = Tensor::run_backward(&[loss.loss], &[&new], false, false).remove(0);
        assert_eq!(Vec::<f64>::try_from(gradient).unwrap(), [-0.25, 0.5, -1.5]);
        assert_eq!((loss.clipped_low, loss.clipped_high, loss.kl_sum), (0.0, 0.0, None));

        let correction = Tensor::from_slice(&[2.0f64, 0.5, 1.0]);
        let reference = new.detach();
        let with_kl = LossSettings { beta: 0.1, ..settings };
        let inputs =
            LossInputs { correction: Some(&correction), reference: Some(&reference), ..inputs };
        let loss = grpo_loss(&with_kl, &inputs).unwrap();
        let gradient = Tensor::run_backward(&[loss.loss], &[&new], false, false).remove(0);
        assert_eq!(
            Vec::<f64>::try_from(gradient).unwrap(),
            [-0.5, 0.25, -1.5],
            "the correction scales the policy's term alone"
        );
    }

    #[test]
    fn row_weights_follow_loss_type() {
        assert_eq!(
            row_weights(LossType::Grpo, &[2, 4, 0], 8, 6),
            [1.0 / 6.0, 1.0 / 12.0, 1.0 / 3.0]
        );
        assert_eq!(row_weights(LossType::Bnpo, &[2, 4], 8, 12), [1.0 / 6.0; 2]);
        assert_eq!(row_weights(LossType::DrGrpo, &[2, 4], 8, 6), [1.0 / 16.0; 2]);
        assert_eq!(row_weights(LossType::Dapo, &[2, 4], 8, 12), [1.0 / 12.0; 2]);
    }
}

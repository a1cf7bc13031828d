//! DPO, direct preference optimisation (Rafailov et al. 2023), on pairs of completions to one
//! question.
//!
//! ```text
//! m = β · Σ_t s_t · (log π_t − log π_ref,t)      s_t = 1 in the chosen completion, −1 in the rejected one
//! L = −1/P · Σ log σ(m)                          over the P pairs of the step
//! ```
//!
//! This is TRL's `DPOTrainer` with `loss_type="sigmoid"`, except that log-probabilities are at the
//! temperature of the rollouts; TRL has none. The pairs are the step's signal
//! ([`corver_core::Estimator::Pairs`]).

use tch::{Kind, Tensor};

use crate::error::Result;

/// Pairs as flat lists of their n tokens. All tensors are on one device.
#[derive(Debug)]
pub struct PairInputs<'a> {
    /// `[n]` log-probabilities under the policy; gradients go here.
    pub new: &'a Tensor,
    /// `[n]` log-probabilities under the reference.
    pub reference: &'a Tensor,
    /// `[n]` s, 1 or −1.
    pub signs: &'a Tensor,
    /// `[n]` i64, index of each token's pair.
    pub pairs: &'a Tensor,
    /// Number of pairs in this batch.
    pub num_pairs: usize,
}

/// Returns m `[num_pairs]`, with a graph to `new`.
///
/// # Errors
/// Fails if the shapes do not fit.
pub fn margins(inputs: &PairInputs<'_>, beta: f64) -> Result<Tensor> {
    let terms = inputs.new.f_sub(inputs.reference)?.f_mul(inputs.signs)?;
    let empty = terms.f_new_zeros([inputs.num_pairs as i64], (terms.f_kind()?, terms.device()))?;
    Ok(empty.f_index_add(0, inputs.pairs, &terms)?.f_mul_scalar(beta)?)
}

/// Returns this batch's share of L, a scalar. `pairs_in_step` is P, so that the losses of
/// micro-batches add up.
///
/// # Errors
/// Fails if libtorch fails.
pub fn dpo_loss(margins: &Tensor, pairs_in_step: usize) -> Result<Tensor> {
    let sum = margins.f_log_sigmoid()?.f_sum(margins.f_kind()?)?;
    Ok(sum.f_div_scalar(-(pairs_in_step.max(1) as f64))?)
}

/// Returns the sum of k3 over the tokens, nats: the distance of the policy from the reference.
pub(crate) fn kl_sum(inputs: &PairInputs<'_>) -> Result<f64> {
    let gap = inputs.reference.f_sub(&inputs.new.f_detach()?)?;
    Ok(gap.f_exp()?.f_sub(&gap)?.f_sub_scalar(1.0)?.f_sum(Kind::Double)?.f_double_value(&[])?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dpo_gradient_scales_with_pair_error() {
        let new = Tensor::from_slice(&[-1.0f64, -2.0, -3.0, -0.5]).set_requires_grad(true);
        let reference = Tensor::from_slice(&[-1.5f64, -2.0, -1.0, -1.0]);
        let signs = Tensor::from_slice(&[1.0f64, 1.0, -1.0, -1.0]);
        // Only the rejected completion of the second pair has tokens.
        let pairs = Tensor::from_slice(&[0i64, 0, 0, 1]);
        let inputs = PairInputs {
            new: &new,
            reference: &reference,
            signs: &signs,
            pairs: &pairs,
            num_pairs: 2,
        };
        let margins = margins(&inputs, 0.5).unwrap();
        assert_eq!(
            Vec::<f64>::try_from(margins.detach()).unwrap(),
            [0.5 * (0.5 + 2.0), 0.5 * -0.5]
        );
        let loss = dpo_loss(&margins, 4).unwrap();
        let expected = ((-1.25f64).exp().ln_1p() + 0.25f64.exp().ln_1p()) / 4.0;
        assert!((loss.double_value(&[]) - expected).abs() < 1e-12);
        let gradient = Tensor::run_backward(&[loss], &[&new], false, false).remove(0);
        let gradient = Vec::<f64>::try_from(gradient).unwrap();
        // −s β σ(−m) / P
        let pull = |margin: f64| 0.5 / (1.0 + margin.exp()) / 4.0;
        let expected = [-pull(1.25), -pull(1.25), pull(1.25), pull(-0.25)];
        assert!(
            gradient.iter().zip(expected).all(|(got, expected)| (got - expected).abs() < 1e-12),
            "{gradient:?}"
        );
    }
}

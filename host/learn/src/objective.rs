//! Training objectives, and their losses on a micro-batch.

use corver_core::{Advantages, LearnSettings, OldLogProbs};
use tch::{Kind, Tensor};

use crate::critic::Critic;
use crate::dpo::{PairInputs, dpo_loss, kl_sum, margins};
use crate::error::{LearnError, Result};
use crate::loss::{Loss, LossInputs, grpo_loss, imitation_loss};
use crate::micro_batch::{MicroBatch, TrainingRow};
use crate::model::Model;
use crate::scores::score;
use crate::update_report::{UpdateTotals, mismatch};

/// Training objective of a step, with its signal.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Objective<'a> {
    /// [`grpo_loss`] with the advantages of every token.
    Clipped(&'a Advantages),
    /// [`dpo_loss`] with 1 for each chosen row and −1 for each rejected one.
    Preference(&'a [f64]),
    /// [`imitation_loss`] of the completions of demonstrations.
    Imitation,
}

/// Inputs that the micro-batches of an update share.
pub(crate) struct UpdateContext<'a> {
    /// Rows of the step.
    pub(crate) rows: &'a [TrainingRow<'a>],
    pub(crate) objective: Objective<'a>,
    pub(crate) settings: &'a LearnSettings,
    /// Temperature of the log-probabilities; above 0.
    pub(crate) temperature: f64,
    /// PPO's critic; `None` for other algorithms.
    pub(crate) critic: Option<&'a Critic>,
    /// Questions of the step, in all micro-batches.
    pub(crate) num_questions: usize,
}

impl<'a> UpdateContext<'a> {
    /// Returns the critic's targets, or `None` if the objective has none.
    pub(crate) fn value_targets(&self) -> Option<&'a Vec<Vec<f64>>> {
        match self.objective {
            Objective::Clipped(advantages) => advantages.targets.as_ref(),
            Objective::Preference(_) | Objective::Imitation => None,
        }
    }
}

/// Scalars to differentiate, one for each set of parameters.
pub(crate) struct Surrogates {
    /// Scalar with the gradient of the loss by the adapters; its value is not the loss.
    pub(crate) policy: Tensor,
    /// Loss of the critic; `None` without a critic.
    pub(crate) critic: Option<Tensor>,
    /// `[n]` f32, log-probabilities before the first iteration; `None` if the loss has none.
    pub(crate) old: Option<Tensor>,
}

impl MicroBatch {
    /// Runs the forward pass and the loss, and adds their figures to `totals`.
    pub(crate) fn surrogates(
        &self,
        model: &Model,
        context: &UpdateContext<'_>,
        totals: &mut UpdateTotals,
    ) -> Result<Surrogates> {
        let hidden = self.hidden(model)?;
        let scores = score(model, &hidden, &self.targets, context.temperature)?;
        let new = scores.log_probs.set_requires_grad(true);
        let mut old = None;
        let loss = match context.objective {
            Objective::Clipped(advantages) => {
                let recomputed = old.insert(self.old_log_probs(&new, totals)?);
                let advantages = self.token_values(&advantages.values, model)?;
                self.clipped_loss(&new, recomputed, &advantages, context.settings)?
            }
            Objective::Preference(signs) => {
                // DPO has no importance ratio; the call reports the mismatch.
                old = Some(self.old_log_probs(&new, totals)?);
                let signs = self.row_values(signs, model)?;
                self.preference_loss(&new, &signs, context, totals)?
            }
            Objective::Imitation => Loss::without_figures(imitation_loss(&new, &self.weights)?),
        };
        totals.loss += loss.loss.f_double_value(&[])?;
        totals.kl += loss.kl_sum.unwrap_or(0.0);
        totals.entropy += scores.entropy.f_sum(Kind::Double)?.f_double_value(&[])?;
        totals.clipped_low += loss.clipped_low;
        totals.clipped_high += loss.clipped_high;
        let critic = self.value_loss(model, &hidden, context, totals)?;
        // The chain rule by hand: `scores` has the derivative of every log-probability by its
        // hidden state, so that no graph over the logits is held.
        let grad_log_probs = Tensor::f_run_backward(&[loss.loss], &[&new], false, false)?.remove(0);
        let grad_hidden = scores.grad_hidden.f_mul(&grad_log_probs.f_unsqueeze(1)?)?; // [n, D]
        let policy = hidden.f_to_kind(Kind::Float)?.f_mul(&grad_hidden)?.f_sum(Kind::Float)?;
        Ok(Surrogates { policy, critic, old })
    }

    /// Returns the log-probabilities before the first iteration, and reports the mismatch if no pass
    /// has.
    fn old_log_probs(&self, new: &Tensor, totals: &mut UpdateTotals) -> Result<Tensor> {
        let old = match &self.old {
            Some(old) => old.shallow_clone(),
            None => new.f_detach()?,
        };
        if !self.is_mismatch_reported {
            totals.mismatches.push((self.weights.numel(), mismatch(&old, &self.sampled)?));
        }
        Ok(old)
    }

    fn clipped_loss(
        &self,
        new: &Tensor,
        recomputed: &Tensor,
        advantages: &Tensor,
        settings: &LearnSettings,
    ) -> Result<Loss> {
        let loss = &settings.loss;
        let mut correction = None;
        let old = match settings.old_log_probs {
            OldLogProbs::Sampled => &self.sampled,
            OldLogProbs::Recomputed => {
                if loss.importance_sampling_correction == Some(true) {
                    let ratio = recomputed.f_sub(&self.sampled)?.f_exp()?;
                    correction = Some(ratio.f_clamp_max(loss.importance_sampling_cap)?);
                }
                recomputed
            }
        };
        let inputs = LossInputs {
            new,
            old: Some(old),
            correction: correction.as_ref(),
            reference: self.reference.as_ref(),
            advantages,
            weights: &self.weights,
            rows: &self.rows,
            lengths: &self.lengths,
        };
        grpo_loss(loss, &inputs)
    }

    fn preference_loss(
        &self,
        new: &Tensor,
        signs: &Tensor,
        context: &UpdateContext<'_>,
        totals: &mut UpdateTotals,
    ) -> Result<Loss> {
        let reference = self.reference.as_ref().ok_or_else(|| missing("reference"))?;
        let inputs = PairInputs {
            new,
            reference,
            signs,
            pairs: &self.questions,
            num_pairs: self.num_questions,
        };
        let margins = margins(&inputs, context.settings.dpo.beta)?;
        totals.margins.extend(Vec::<f64>::try_from(&margins.f_detach()?.f_to_kind(Kind::Double)?)?);
        Ok(Loss {
            kl_sum: Some(kl_sum(&inputs)?),
            ..Loss::without_figures(dpo_loss(&margins, context.num_questions)?)
        })
    }

    fn value_loss(
        &self,
        model: &Model,
        hidden: &Tensor,
        context: &UpdateContext<'_>,
        totals: &mut UpdateTotals,
    ) -> Result<Option<Tensor>> {
        let Some(critic) = context.critic else { return Ok(None) };
        let step_targets = context.value_targets().ok_or_else(|| missing("targets"))?;
        let targets = self.token_values(step_targets, model)?;
        let old = self.values.as_ref().ok_or_else(|| missing("values"))?;
        let value_loss = critic.loss(hidden, old, &targets, &self.weights)?;
        totals.value_loss += value_loss.loss.f_double_value(&[])?;
        totals.clipped_values += value_loss.clipped;
        Ok(Some(value_loss.loss))
    }
}

/// Returns the error of an update without a tensor that its algorithm needs.
fn missing(what: &'static str) -> LearnError {
    LearnError::Input { what, expected: "one number for each token".into(), got: "none".into() }
}

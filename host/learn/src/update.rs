//! The gradient of one step: micro-batches of similar length, accumulated.

use std::ops::Range;

use corver_core::update::CriticReport;
use corver_core::{Algorithm, LearnSettings, UpdateReport};
use tch::{Kind, Tensor};

use crate::critic::{Critic, explained_variance};
use crate::error::Result;
use crate::loss::row_weights;
use crate::micro_batch::{MicroBatch, TrainingRow, split_rows};
use crate::model::Model;
use crate::objective::{Objective, UpdateContext};
use crate::update_report::{UpdateTotals, pool_mismatches, preference_report};

/// The rows of a step in micro-batches, with every tensor that does not depend on advantages.
pub(crate) struct PreparedUpdate {
    /// `[B]` tokens of each row.
    pub(crate) lengths: Vec<usize>,
    /// `[B][T]` the critic's values; `None` without a critic.
    pub(crate) values: Option<Vec<Vec<f64>>>,
    micro_batches: Vec<MicroBatch>,
    /// Rows of each optimiser step; 1 or more.
    pub(crate) mini_batches: Vec<MiniBatch>,
}

/// Rows of one optimiser step.
pub(crate) struct MiniBatch {
    /// Indices of its micro-batches.
    micro_batches: Range<usize>,
    /// Completion tokens of its rows.
    pub(crate) num_tokens: usize,
}

/// Gradients of a mini-batch, and its report.
pub(crate) struct Gradient {
    /// Gradient of the policy's loss by the adapters.
    pub(crate) gradients: Vec<Tensor>,
    /// Gradient of the critic's loss by its parameters; empty without a critic.
    pub(crate) critic_gradients: Vec<Tensor>,
    /// Report without gradient norm and learning rate.
    pub(crate) report: UpdateReport,
}

/// Splits the rows into micro-batches, and computes the reference's log-probabilities and the
/// critic's values where the update needs them.
pub(crate) fn prepare(
    model: &mut Model,
    critic: Option<&Critic>,
    rows: &[TrainingRow<'_>],
    settings: &LearnSettings,
    temperature: f64,
    max_completion_length: usize,
) -> Result<PreparedUpdate> {
    let lengths: Vec<usize> = rows.iter().map(|row| row.rollout.tokens.len()).collect();
    let mut weights = Vec::new();
    let mut micro_batch_rows = Vec::new();
    let mut mini_batches = Vec::new();
    for part in 0..settings.num_mini_batches {
        let range = part * rows.len() / settings.num_mini_batches
            ..(part + 1) * rows.len() / settings.num_mini_batches;
        let part_lengths = &lengths[range.clone()];
        let num_tokens = part_lengths.iter().sum();
        weights.extend(row_weights(
            settings.loss.loss_type,
            part_lengths,
            max_completion_length,
            num_tokens,
        ));
        let first = micro_batch_rows.len();
        // Both completions of a DPO pair must be in one micro-batch.
        let whole_questions = settings.algorithm == Algorithm::Dpo;
        micro_batch_rows.extend(split_rows(
            rows,
            range,
            settings.micro_batch_tokens,
            whole_questions,
        ));
        mini_batches.push(MiniBatch { micro_batches: first..micro_batch_rows.len(), num_tokens });
    }

    let mut micro_batches = Vec::with_capacity(micro_batch_rows.len());
    for members in micro_batch_rows {
        micro_batches.push(MicroBatch::new(model, rows, &weights, members)?);
    }
    let mut prepared = PreparedUpdate { lengths, values: None, micro_batches, mini_batches };
    if settings.needs_reference() {
        with_adapters(model, false, |reference| prepared.set_references(reference, temperature))?;
    }
    if let Some(critic) = critic {
        with_adapters(model, true, |policy| prepared.set_values(critic, policy))?;
    }
    Ok(prepared)
}

/// Calls `pass` with the adapters on or off, and restores their state even if it fails.
fn with_adapters<T>(
    model: &mut Model,
    on: bool,
    pass: impl FnOnce(&Model) -> Result<T>,
) -> Result<T> {
    let were_on = model.set_adapters(on);
    let result = pass(model);
    model.set_adapters(were_on);
    result
}

impl PreparedUpdate {
    fn set_references(&mut self, model: &Model, temperature: f64) -> Result<()> {
        for batch in &mut self.micro_batches {
            batch.set_reference(model, temperature)?;
        }
        Ok(())
    }

    fn set_values(&mut self, critic: &Critic, model: &Model) -> Result<()> {
        let _guard = tch::no_grad_guard();
        let mut row_values: Vec<Vec<f64>> = vec![Vec::new(); self.lengths.len()];
        for batch in &mut self.micro_batches {
            let values = critic.values(&batch.hidden(model)?)?;
            let mut flat = Vec::<f64>::try_from(&values.f_to_kind(Kind::Double)?)?.into_iter();
            for &member in &batch.members {
                row_values[member] = flat.by_ref().take(self.lengths[member]).collect();
            }
            batch.values = Some(values);
        }
        self.values = Some(row_values);
        Ok(())
    }

    /// Computes the policy's log-probabilities before the first of several updates.
    pub(crate) fn set_old_log_probs(&mut self, model: &mut Model, temperature: f64) -> Result<()> {
        with_adapters(model, true, |policy| {
            for batch in &mut self.micro_batches {
                batch.set_old_log_probs(policy, temperature)?;
            }
            Ok(())
        })
    }

    /// Returns the number of questions of the step that have tokens.
    pub(crate) fn num_questions(&self) -> usize {
        self.micro_batches.iter().map(|batch| batch.num_questions).sum()
    }
}

/// Computes the gradient of a mini-batch's loss.
pub(crate) fn gradient(
    model: &mut Model,
    prepared: &mut PreparedUpdate,
    mini_batch: usize,
    context: &UpdateContext<'_>,
) -> Result<Gradient> {
    with_adapters(model, true, |policy| accumulate(policy, prepared, mini_batch, context))
}

fn accumulate(
    model: &Model,
    prepared: &mut PreparedUpdate,
    mini_batch: usize,
    context: &UpdateContext<'_>,
) -> Result<Gradient> {
    let parameters: Vec<Tensor> =
        model.lora_parameters().into_iter().map(|(_, tensor)| tensor.shallow_clone()).collect();
    let mut gradients = zeros_like(&parameters)?;
    let mut critic_gradients = zeros_like(context.critic.map_or(&[], Critic::parameters))?;
    let mut totals = UpdateTotals::default();
    let MiniBatch { micro_batches, num_tokens } = &prepared.mini_batches[mini_batch];
    for batch in &mut prepared.micro_batches[micro_batches.clone()] {
        let surrogates = batch.surrogates(model, context, &mut totals)?;
        let grads = Tensor::f_run_backward(&[surrogates.policy], &parameters, false, false)?;
        add_in_place(&mut gradients, &grads)?;
        if let (Some(loss), Some(critic)) = (surrogates.critic, context.critic) {
            let critic_grads = Tensor::f_run_backward(&[loss], critic.parameters(), false, false)?;
            add_in_place(&mut critic_gradients, &critic_grads)?;
        }
    }
    let report = report(&totals, *num_tokens, prepared.values.as_deref(), context);
    Ok(Gradient { gradients, critic_gradients, report })
}

fn zeros_like(tensors: &[Tensor]) -> Result<Vec<Tensor>> {
    let mut zeros = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        zeros.push(tensor.f_zeros_like()?);
    }
    Ok(zeros)
}

fn add_in_place(sums: &mut [Tensor], parts: &[Tensor]) -> Result<()> {
    for (sum, part) in sums.iter_mut().zip(parts) {
        let _ = sum.f_add_(part)?;
    }
    Ok(())
}

/// Turns the sums over `num_tokens` tokens into means.
fn report(
    totals: &UpdateTotals,
    num_tokens: usize,
    values: Option<&[Vec<f64>]>,
    context: &UpdateContext<'_>,
) -> UpdateReport {
    let divisor = num_tokens.max(1) as f64;
    let mut critic = None;
    if let (Some(values), Some(targets)) = (values, context.value_targets()) {
        critic = Some(CriticReport {
            loss: totals.value_loss,
            clip_ratio: totals.clipped_values / divisor,
            explained_variance: explained_variance(values, targets),
        });
    }
    UpdateReport {
        loss: totals.loss,
        kl: context.settings.needs_reference().then_some(totals.kl / divisor),
        entropy: totals.entropy / divisor,
        clip_ratio_low: totals.clipped_low / divisor,
        clip_ratio_high: totals.clipped_high / divisor,
        mismatch: pool_mismatches(&totals.mismatches),
        critic,
        preference: match context.objective {
            Objective::Preference(_) => Some(preference_report(&totals.margins)),
            Objective::Clipped(_) | Objective::Imitation => None,
        },
        ..UpdateReport::default()
    }
}

#[cfg(test)]
mod tests;

//! The gradient of one step: micro-batches, accumulated. One that runs out of memory is halved.

use corver_core::update::CriticReport;
use corver_core::{Algorithm, LearnSettings, UpdateReport};
use tch::{Kind, Tensor};

use crate::critic::{Critic, explained_variance};
use crate::error::{LearnError, Result};
use crate::loss::row_weights;
use crate::micro_batch::{MicroBatch, PassLimit, TrainingRow, split_rows};
use crate::model::Model;
use crate::objective::{Objective, UpdateContext};
use crate::plan::key_share;
use crate::update_report::{UpdateTotals, pool_mismatches, preference_report};

/// The rows of a step in micro-batches, with every tensor that does not depend on advantages.
pub(crate) struct PreparedUpdate {
    /// `[B]` tokens of each row.
    pub(crate) lengths: Vec<usize>,
    /// `[B][T]` the critic's values; `None` without a critic.
    pub(crate) values: Option<Vec<Vec<f64>>>,
    /// `[B]` weight of each row's tokens in the loss.
    row_weights: Vec<f64>,
    /// Rows of each optimiser step; 1 or more.
    pub(crate) mini_batches: Vec<MiniBatch>,
    /// True if memory has run out, so that a micro-batch was halved.
    pub(crate) was_halved: bool,
}

/// Rows of one optimiser step.
pub(crate) struct MiniBatch {
    micro_batches: Vec<MicroBatch>,
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
    let lora_rank = model.lora().map_or(0, |lora| lora.r);
    let limit = PassLimit {
        tokens: settings.micro_batch_tokens,
        key_share: key_share(model.config(), model.kind(), model.device(), lora_rank),
    };
    let mut row_weights_of_step = Vec::new();
    let mut members_of_parts = Vec::new();
    for part in 0..settings.num_mini_batches {
        let range = part * rows.len() / settings.num_mini_batches
            ..(part + 1) * rows.len() / settings.num_mini_batches;
        let part_lengths = &lengths[range.clone()];
        let num_tokens = part_lengths.iter().sum();
        row_weights_of_step.extend(row_weights(
            settings.loss.loss_type,
            part_lengths,
            max_completion_length,
            num_tokens,
        ));
        let members = split_rows(rows, range, limit, needs_whole_questions(settings));
        members_of_parts.push((members, num_tokens));
    }

    let mut mini_batches = Vec::with_capacity(members_of_parts.len());
    for (members_of_batches, num_tokens) in members_of_parts {
        let mut micro_batches = Vec::with_capacity(members_of_batches.len());
        for members in members_of_batches {
            micro_batches.push(MicroBatch::new(model, rows, &row_weights_of_step, members)?);
        }
        mini_batches.push(MiniBatch { micro_batches, num_tokens });
    }
    let mut prepared = PreparedUpdate {
        lengths,
        values: None,
        row_weights: row_weights_of_step,
        mini_batches,
        was_halved: false,
    };
    if settings.needs_reference() {
        with_adapters(model, false, |reference| prepared.set_references(reference, temperature))?;
    }
    if let Some(critic) = critic {
        with_adapters(model, true, |policy| prepared.set_values(critic, policy))?;
    }
    Ok(prepared)
}

/// Returns true if both completions of a pair must be in one micro-batch.
fn needs_whole_questions(settings: &LearnSettings) -> bool {
    settings.algorithm == Algorithm::Dpo
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
    fn micro_batches(&self) -> impl Iterator<Item = &MicroBatch> {
        self.mini_batches.iter().flat_map(|mini_batch| &mini_batch.micro_batches)
    }

    fn micro_batches_mut(&mut self) -> impl Iterator<Item = &mut MicroBatch> {
        self.mini_batches.iter_mut().flat_map(|mini_batch| &mut mini_batch.micro_batches)
    }

    fn set_references(&mut self, model: &Model, temperature: f64) -> Result<()> {
        for batch in self.micro_batches_mut() {
            batch.set_reference(model, temperature)?;
        }
        Ok(())
    }

    fn set_values(&mut self, critic: &Critic, model: &Model) -> Result<()> {
        let _guard = tch::no_grad_guard();
        let lengths = self.lengths.clone();
        let mut row_values: Vec<Vec<f64>> = vec![Vec::new(); lengths.len()];
        for batch in self.micro_batches_mut() {
            let values = critic.values(&batch.hidden(model)?)?;
            let mut flat = Vec::<f64>::try_from(&values.f_to_kind(Kind::Double)?)?.into_iter();
            for &member in &batch.members {
                row_values[member] = flat.by_ref().take(lengths[member]).collect();
            }
            batch.values = Some(values);
        }
        self.values = Some(row_values);
        Ok(())
    }

    /// Computes the policy's log-probabilities before the first of several updates.
    pub(crate) fn set_old_log_probs(&mut self, model: &mut Model, temperature: f64) -> Result<()> {
        with_adapters(model, true, |policy| {
            for batch in self.micro_batches_mut() {
                batch.set_old_log_probs(policy, temperature)?;
            }
            Ok(())
        })
    }

    /// Returns the number of questions of the step that have tokens.
    pub(crate) fn num_questions(&self) -> usize {
        self.micro_batches().map(|batch| batch.num_questions).sum()
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
    let mut sums = GradientSums::new(model, context)?;
    let PreparedUpdate { row_weights, mini_batches, .. } = &mut *prepared;
    let MiniBatch { micro_batches, num_tokens } = &mut mini_batches[mini_batch];
    let num_tokens = *num_tokens;
    let whole_questions = needs_whole_questions(context.settings);
    prepared.was_halved |= for_each_or_its_halves(
        micro_batches,
        |batch| batch.halves(model, context.rows, row_weights, whole_questions),
        |batch| sums.add(model, batch, context),
    )?;
    let GradientSums { gradients, critic_gradients, totals, .. } = sums;
    let report = report(&totals, num_tokens, prepared.values.as_deref(), context);
    Ok(Gradient { gradients, critic_gradients, report })
}

/// Sums over the micro-batches of a mini-batch.
struct GradientSums {
    parameters: Vec<Tensor>,
    gradients: Vec<Tensor>,
    critic_gradients: Vec<Tensor>,
    totals: UpdateTotals,
}

impl GradientSums {
    fn new(model: &Model, context: &UpdateContext<'_>) -> Result<Self> {
        let parameters: Vec<Tensor> =
            model.lora_parameters().into_iter().map(|(_, tensor)| tensor.shallow_clone()).collect();
        Ok(Self {
            gradients: zeros_like(&parameters)?,
            critic_gradients: zeros_like(context.critic.map_or(&[], Critic::parameters))?,
            parameters,
            totals: UpdateTotals::default(),
        })
    }

    /// Adds the gradient of a micro-batch. Changes neither the sums nor the batch if it fails.
    fn add(
        &mut self,
        model: &Model,
        batch: &mut MicroBatch,
        context: &UpdateContext<'_>,
    ) -> Result<()> {
        let mut totals = UpdateTotals::default();
        let surrogates = batch.surrogates(model, context, &mut totals)?;
        let grads = Tensor::f_run_backward(&[surrogates.policy], &self.parameters, false, false)?;
        let mut critic_grads = Vec::new();
        if let (Some(loss), Some(critic)) = (surrogates.critic, context.critic) {
            critic_grads = Tensor::f_run_backward(&[loss], critic.parameters(), false, false)?;
        }
        add_in_place(&mut self.gradients, &grads)?;
        add_in_place(&mut self.critic_gradients, &critic_grads)?;
        self.totals.add(totals);
        if let Some(old) = surrogates.old {
            batch.old = Some(old);
            batch.is_mismatch_reported = true;
        }
        Ok(())
    }
}

/// Calls `pass` with each micro-batch. Replaces one for which memory runs out by its halves. Returns
/// true if it did.
///
/// # Errors
/// Fails with the error of `pass` or `halves`, or if memory runs out for a micro-batch that has no
/// halves.
fn for_each_or_its_halves(
    micro_batches: &mut Vec<MicroBatch>,
    halves: impl Fn(&MicroBatch) -> Result<Option<[MicroBatch; 2]>>,
    mut pass: impl FnMut(&mut MicroBatch) -> Result<()>,
) -> Result<bool> {
    let mut was_halved = false;
    let mut n = 0;
    while let Some(batch) = micro_batches.get_mut(n) {
        match pass(batch) {
            Ok(()) => n += 1,
            Err(error) if error.is_out_of_memory() => {
                let tokens = batch.num_tokens();
                let Some(parts) = halves(batch)? else {
                    return Err(LearnError::Device(format!(
                        "not enough memory: an update with {tokens} tokens does not fit; lower \
                         rollout.max_completion_length or update.lora.r, or use a larger device \
                         ({error})"
                    )));
                };
                tracing::warn!(
                    tokens,
                    "memory ran out in an update; the micro-batch is halved and repeated"
                );
                micro_batches.splice(n..=n, parts);
                was_halved = true;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(was_halved)
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

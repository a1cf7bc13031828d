//! The gradient of one step: micro-batches of similar length, accumulated.

use std::cmp::Reverse;
use std::ops::Range;

use corver_core::update::{CriticReport, PreferenceReport};
use corver_core::{
    Advantages, Algorithm, LearnSettings, Mismatch, OldLogProbs, Rollout, UpdateReport,
};
use tch::{Kind, Tensor};

use crate::critic::{Critic, explained_variance};
use crate::dpo::{PairInputs, dpo_loss, kl_sum, margins};
use crate::error::{LearnError, Result};
use crate::loss::{Loss, LossInputs, grpo_loss, imitation_loss, row_weights};
use crate::model::Model;
use crate::packed::Packed;
use crate::scores::{log_probs, score};

/// One rollout and its prompt.
pub(crate) struct Row<'a> {
    pub(crate) prompt: &'a [u32],
    pub(crate) rollout: &'a Rollout,
}

/// The rows of a step in micro-batches, with everything that needs no advantages.
pub(crate) struct Prepared {
    /// `[B]` tokens of each row.
    pub(crate) lengths: Vec<usize>,
    /// `[B][T]` what the critic expects, where there is one.
    pub(crate) values: Option<Vec<Vec<f64>>>,
    batches: Vec<Batch>,
    /// At least one.
    pub(crate) mini_batches: Vec<MiniBatch>,
}

/// Rows of one optimiser step.
pub(crate) struct MiniBatch {
    /// Its micro-batches.
    batches: Range<usize>,
    /// Completion tokens of its rows.
    pub(crate) num_tokens: usize,
}

/// The loss's gradient by the adapters, and the report so far.
pub(crate) struct Gradient {
    pub(crate) gradients: Vec<Tensor>,
    /// That of the critic's loss by its parameters; empty where there is no critic.
    pub(crate) of_critic: Vec<Tensor>,
    /// Without gradient norm and learning rate.
    pub(crate) report: UpdateReport,
}

/// What the micro-batches add up.
#[derive(Default)]
struct Totals {
    /// Of the whole step, known from the beginning.
    questions: usize,
    loss: f64,
    kl: f64,
    entropy: f64,
    clipped_low: f64,
    clipped_high: f64,
    /// Of the first iteration.
    mismatch: Vec<(usize, Mismatch)>,
    /// DPO's, one per pair.
    margins: Vec<f64>,
    critic: CriticReport,
}

/// Cuts the rows into micro-batches, and asks the reference for its log-probabilities where the
/// loss compares with them, and the critic for its values.
pub(crate) fn prepare(
    model: &mut Model,
    critic: Option<&Critic>,
    rows: &[Row<'_>],
    settings: &LearnSettings,
    temperature: f64,
    max_completion_length: usize,
) -> Result<Prepared> {
    let lengths: Vec<usize> = rows.iter().map(|row| row.rollout.tokens.len()).collect();
    let whole_questions = settings.algorithm == Algorithm::Dpo;
    let mut weights = Vec::new();
    let mut micro = Vec::new();
    let mut mini_batches = Vec::new();
    for part in 0..settings.num_mini_batches {
        let own = part * rows.len() / settings.num_mini_batches
            ..(part + 1) * rows.len() / settings.num_mini_batches;
        let own_lengths = &lengths[own.clone()];
        let num_tokens = own_lengths.iter().sum();
        weights.extend(row_weights(
            settings.loss.loss_type,
            own_lengths,
            max_completion_length,
            num_tokens,
        ));
        let first = micro.len();
        micro.extend(micro_batches(rows, own, settings.micro_batch_tokens, whole_questions));
        mini_batches.push(MiniBatch { batches: first..micro.len(), num_tokens });
    }
    let were_on = model.set_adapters(false);
    let batches = micro.into_iter().map(|members| {
        let mut batch = Batch::new(model, rows, &weights, members)?;
        if settings.needs_reference() {
            let _guard = tch::no_grad_guard();
            batch.reference =
                Some(log_probs(model, &batch.hidden(model)?, &batch.targets, temperature)?);
        }
        Ok(batch)
    });
    let batches = batches.collect::<Result<Vec<_>>>();
    model.set_adapters(true);
    let prepared = batches.and_then(|batches| {
        let mut prepared = Prepared { lengths, values: None, batches, mini_batches };
        prepared.ask(critic, model)?;
        Ok(prepared)
    });
    model.set_adapters(were_on);
    prepared
}

impl Prepared {
    /// Asks the critic, where there is one, what it expects of every token.
    fn ask(&mut self, critic: Option<&Critic>, model: &Model) -> Result<()> {
        let Some(critic) = critic else { return Ok(()) };
        let _guard = tch::no_grad_guard();
        let mut by_row: Vec<Vec<f64>> = vec![Vec::new(); self.lengths.len()];
        for batch in &mut self.batches {
            let values = critic.values(&batch.hidden(model)?)?;
            let mut flat = Vec::<f64>::try_from(&values.f_to_kind(Kind::Double)?)?.into_iter();
            for &member in &batch.members {
                by_row[member] = flat.by_ref().take(self.lengths[member]).collect();
            }
            batch.values = Some(values);
        }
        self.values = Some(by_row);
        Ok(())
    }

    /// Notes the policy's log-probabilities before the first of several updates.
    pub(crate) fn note_log_probs(&mut self, model: &mut Model, temperature: f64) -> Result<()> {
        let were_on = model.set_adapters(true);
        let noted =
            self.batches.iter_mut().try_for_each(|batch| batch.note_log_probs(model, temperature));
        model.set_adapters(were_on);
        noted
    }

    fn num_questions(&self) -> usize {
        self.batches.iter().map(|batch| batch.num_questions).sum()
    }
}

/// Training objective of a step, with its signal.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Objective<'a> {
    /// [`grpo_loss`], with the advantages of every token.
    Clipped(&'a Advantages),
    /// [`dpo_loss`], with 1 for each chosen row and −1 for each rejected one.
    Preference(&'a [f64]),
    /// [`imitation_loss`]
    Imitation,
}

/// What all micro-batches of a step learn from.
pub(crate) struct Lesson<'a> {
    pub(crate) objective: Objective<'a>,
    pub(crate) settings: &'a LearnSettings,
    pub(crate) temperature: f64,
    pub(crate) critic: Option<&'a Critic>,
}

impl<'a> Lesson<'a> {
    /// Returns the critic's targets, if there is a critic.
    fn targets(&self) -> Option<&'a Vec<Vec<f64>>> {
        match self.objective {
            Objective::Clipped(advantages) => advantages.targets.as_ref(),
            Objective::Preference(_) | Objective::Imitation => None,
        }
    }
}

/// The gradient of the loss.
pub(crate) fn gradient(
    model: &mut Model,
    prepared: &mut Prepared,
    mini_batch: usize,
    lesson: &Lesson<'_>,
) -> Result<Gradient> {
    let were_on = model.set_adapters(true);
    let result = accumulate(model, prepared, mini_batch, lesson);
    model.set_adapters(were_on);
    result
}

fn accumulate(
    model: &Model,
    prepared: &mut Prepared,
    mini_batch: usize,
    lesson: &Lesson<'_>,
) -> Result<Gradient> {
    let Lesson { settings, critic, .. } = *lesson;
    let parameters: Vec<Tensor> =
        model.lora_parameters().into_iter().map(|(_, t)| t.shallow_clone()).collect();
    let zeros =
        |of: &[Tensor]| of.iter().map(|p| Ok(p.f_zeros_like()?)).collect::<Result<Vec<_>>>();
    let mut gradients = zeros(&parameters)?;
    let mut of_critic = zeros(critic.map_or(&[], Critic::parameters))?;
    let mut totals = Totals { questions: prepared.num_questions(), ..Totals::default() };
    let MiniBatch { batches, num_tokens } = &prepared.mini_batches[mini_batch];
    let num_tokens = *num_tokens;
    for batch in &mut prepared.batches[batches.clone()] {
        let (surrogate, value_loss) = batch.surrogate(model, lesson, &mut totals)?;
        add(&mut gradients, &Tensor::f_run_backward(&[surrogate], &parameters, false, false)?)?;
        if let (Some(loss), Some(critic)) = (value_loss, critic) {
            add(
                &mut of_critic,
                &Tensor::f_run_backward(&[loss], critic.parameters(), false, false)?,
            )?;
        }
    }
    let per_token = |sum: f64| sum / num_tokens.max(1) as f64;
    let mut critic_report = None;
    if let (Some(values), Some(targets)) = (&prepared.values, lesson.targets()) {
        critic_report = Some(CriticReport {
            clip_ratio: per_token(totals.critic.clip_ratio),
            explained_variance: explained_variance(values, targets),
            ..totals.critic
        });
    }
    let report = UpdateReport {
        loss: totals.loss,
        kl: settings.needs_reference().then(|| per_token(totals.kl)),
        entropy: per_token(totals.entropy),
        clip_ratio_low: per_token(totals.clipped_low),
        clip_ratio_high: per_token(totals.clipped_high),
        mismatch: joined(&totals.mismatch),
        critic: critic_report,
        preference: match lesson.objective {
            Objective::Preference(_) => Some(of_margins(&totals.margins)),
            Objective::Clipped(_) | Objective::Imitation => None,
        },
        ..UpdateReport::default()
    };
    Ok(Gradient { gradients, of_critic, report })
}

fn add(sums: &mut [Tensor], parts: &[Tensor]) -> Result<()> {
    for (sum, part) in sums.iter_mut().zip(parts) {
        let _ = sum.f_add_(part)?;
    }
    Ok(())
}

fn of_margins(margins: &[f64]) -> PreferenceReport {
    let pairs = margins.len() as f64;
    let mean = |sum: f64| sum / pairs.max(1.0);
    PreferenceReport {
        pairs,
        margin: mean(margins.iter().sum()),
        accuracy: mean(margins.iter().filter(|margin| **margin > 0.0).count() as f64),
    }
}

/// Numbers of the rows in `own`, those of one question next to each other and the longest first,
/// cut so that no part has more than `limit` tokens (one row always fits, or one question where
/// these stay whole). A prompt counts once in each part. Rows without tokens have no gradient and
/// are left out.
fn micro_batches(
    rows: &[Row<'_>],
    own: Range<usize>,
    limit: usize,
    whole_questions: bool,
) -> Vec<Vec<usize>> {
    let (length, question) =
        (|n: usize| rows[n].rollout.tokens.len(), |n: usize| rows[n].rollout.question);
    let mut order: Vec<usize> = own.filter(|&n| length(n) > 0).collect();
    order.sort_by_key(|&n| (question(n), Reverse(length(n))));
    let mut parts: Vec<Vec<usize>> = Vec::new();
    let mut tokens = 0;
    for unit in order.chunk_by(|&a, &b| whole_questions && question(a) == question(b)) {
        let unit_tokens: usize = unit.iter().map(|&n| length(n)).sum();
        let prompt = rows[unit[0]].prompt.len();
        let shares_prompt = |part: &Vec<usize>| question(part[part.len() - 1]) == question(unit[0]);
        let more = |part: &Vec<usize>| unit_tokens + if shares_prompt(part) { 0 } else { prompt };
        match parts.last_mut().filter(|part| tokens + more(part) <= limit) {
            Some(part) => {
                tokens += more(part);
                part.extend(unit);
            }
            None => {
                tokens = prompt + unit_tokens;
                parts.push(unit.to_vec());
            }
        }
    }
    parts
}

/// The tensors of one micro-batch; its n completion tokens lie in a flat list.
struct Batch {
    /// The step's rows that are in it.
    members: Vec<usize>,
    /// Prompts and completions, these without their last token.
    packed: Packed,
    /// `[n]` i64, where in the flat list the hidden state before each completion token is.
    places: Tensor,
    /// `[n]` i64
    targets: Tensor,
    /// `[n]` f32, the log-probabilities that the importance ratio compares with; `None`: the
    /// policy's own.
    old: Option<Tensor>,
    /// The distance of the sampler from the policy is in a report already.
    has_mismatch: bool,
    /// `[n]` f32, the reference's.
    reference: Option<Tensor>,
    /// `[n]` f32, what the critic expected before the update.
    values: Option<Tensor>,
    /// `[n]` f32
    sampled: Tensor,
    /// `[n]` f32
    weights: Tensor,
    /// `[n]` i64
    rows: Tensor,
    /// `[n]` i64, the question that each token answers, from 0.
    questions: Tensor,
    num_questions: usize,
    /// `[B]` i64
    lengths: Tensor,
}

impl Batch {
    fn new(model: &Model, all: &[Row<'_>], weight_of: &[f64], members: Vec<usize>) -> Result<Self> {
        let row = |&n: &usize| &all[n];
        let of_question: Vec<_> =
            members.chunk_by(|a, b| row(a).rollout.question == row(b).rollout.question).collect();
        let seen = |entry: &Row<'_>| entry.rollout.tokens.len() - 1;
        let groups: Vec<_> = of_question
            .iter()
            .map(|rows| {
                let completions = rows.iter().map(|n| &row(n).rollout.tokens[..seen(row(n))]);
                (row(&rows[0]).prompt, completions.collect())
            })
            .collect();
        let packed = Packed::new(model.config(), model.device(), &groups)?;
        let (mut next, mut last_of_prompt) = (0, 0); // in the flat list
        let (mut places, mut targets, mut rows, mut questions) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut num_questions = 0;
        let (mut sampled, mut weights) = (Vec::new(), Vec::new());
        for (n, member) in members.iter().enumerate() {
            let Row { prompt, rollout } = row(member);
            if n == 0 || row(&members[n - 1]).rollout.question != rollout.question {
                next += prompt.len() as i64;
                last_of_prompt = next - 1;
                num_questions += 1;
            }
            let behind = seen(row(member)) as i64;
            places.push(last_of_prompt);
            places.extend(next..next + behind);
            next += behind;
            targets.extend(rollout.tokens.iter().map(|&id| i64::from(id)));
            rows.resize(places.len(), n as i64);
            questions.resize(places.len(), num_questions as i64 - 1);
            sampled.extend_from_slice(&rollout.log_probs);
            weights.resize(places.len(), weight_of[*member] as f32);
        }
        let lengths: Vec<i64> =
            members.iter().map(|n| row(n).rollout.tokens.len() as i64).collect();
        let device = model.device();
        let integers =
            |values: &[i64]| Tensor::f_from_slice(values).and_then(|t| t.f_to_device(device));
        let floats =
            |values: &[f32]| Tensor::f_from_slice(values).and_then(|t| t.f_to_device(device));
        Ok(Self {
            packed,
            places: integers(&places)?,
            targets: integers(&targets)?,
            old: None,
            has_mismatch: false,
            reference: None,
            values: None,
            sampled: floats(&sampled)?,
            weights: floats(&weights)?,
            rows: integers(&rows)?,
            questions: integers(&questions)?,
            num_questions,
            lengths: integers(&lengths)?,
            members,
        })
    }

    /// `[n, D]`
    fn hidden(&self, model: &Model) -> Result<Tensor> {
        Ok(model.hidden_packed(&self.packed)?.f_index_select(0, &self.places)?)
    }

    /// A scalar whose gradient by the adapters is the loss's (its value is not the loss, which goes
    /// into `totals`); and the critic's loss, where there is one.
    fn surrogate(
        &mut self,
        model: &Model,
        lesson: &Lesson<'_>,
        totals: &mut Totals,
    ) -> Result<(Tensor, Option<Tensor>)> {
        let hidden = self.hidden(model)?;
        let scores = score(model, &hidden, &self.targets, lesson.temperature)?;
        let new = scores.log_probs.set_requires_grad(true);
        let loss = match lesson.objective {
            Objective::Clipped(advantages) => {
                let advantages = self.flat(&advantages.values, model)?;
                self.clipped(&new, &advantages, lesson.settings, totals)?
            }
            Objective::Preference(signs) => {
                let signs = self.of_rows(signs, model)?;
                self.preference(&new, &signs, lesson, totals)?
            }
            Objective::Imitation => Loss::alone(imitation_loss(&new, &self.weights)?),
        };
        totals.loss += loss.loss.f_double_value(&[])?;
        totals.kl += loss.kl_sum.unwrap_or(0.0);
        totals.entropy += scores.entropy.f_sum(Kind::Double)?.f_double_value(&[])?;
        totals.clipped_low += loss.clipped_low;
        totals.clipped_high += loss.clipped_high;
        let value_loss = self.value_loss(model, &hidden, lesson, totals)?;
        let outer = Tensor::f_run_backward(&[loss.loss], &[&new], false, false)?.remove(0); // [n]
        let pull = scores.slopes.f_mul(&outer.f_unsqueeze(1)?)?; // [n, D]: derivative of the loss by `hidden`
        Ok((hidden.f_to_kind(Kind::Float)?.f_mul(&pull)?.f_sum(Kind::Float)?, value_loss))
    }

    /// `[n]` f32 of one list per row of the step.
    fn flat(&self, rows: &[Vec<f64>], model: &Model) -> Result<Tensor> {
        let flat: Vec<f32> =
            self.members.iter().flat_map(|&n| &rows[n]).map(|&value| value as f32).collect();
        Ok(Tensor::f_from_slice(&flat)?.f_to_device(model.device())?)
    }

    /// Returns `[n]` f32, the number of each token's row.
    fn of_rows(&self, numbers: &[f64], model: &Model) -> Result<Tensor> {
        let own: Vec<f32> = self.members.iter().map(|&row| numbers[row] as f32).collect();
        let own = Tensor::f_from_slice(&own)?.f_to_device(model.device())?;
        Ok(own.f_index_select(0, &self.rows)?)
    }

    /// The log-probabilities before the update. What further iterations compare with is the policy
    /// before the first one.
    fn before(&mut self, new: &Tensor, totals: &mut Totals) -> Result<Tensor> {
        let old = match &self.old {
            Some(old) => old.shallow_clone(),
            None => new.f_detach()?,
        };
        if !self.has_mismatch {
            totals.mismatch.push((self.weights.numel(), mismatch(&old, &self.sampled)?));
            self.has_mismatch = true;
        }
        self.old = Some(old.shallow_clone());
        Ok(old)
    }

    fn note_log_probs(&mut self, model: &Model, temperature: f64) -> Result<()> {
        let _guard = tch::no_grad_guard();
        self.old = Some(log_probs(model, &self.hidden(model)?, &self.targets, temperature)?);
        Ok(())
    }

    /// See [`grpo_loss`].
    fn clipped(
        &mut self,
        new: &Tensor,
        advantages: &Tensor,
        settings: &LearnSettings,
        totals: &mut Totals,
    ) -> Result<Loss> {
        let before = self.before(new, totals)?;
        let loss = &settings.loss;
        let (old, is_corrected) = match settings.old_log_probs {
            OldLogProbs::Sampled => (&self.sampled, false),
            OldLogProbs::Recomputed => (&before, loss.importance_sampling_correction == Some(true)),
        };
        let correction = if is_corrected {
            Some(before.f_sub(&self.sampled)?.f_exp()?.f_clamp_max(loss.importance_sampling_cap)?)
        } else {
            None
        };
        grpo_loss(
            loss,
            &LossInputs {
                new,
                old: Some(old),
                correction: correction.as_ref(),
                reference: self.reference.as_ref(),
                advantages,
                weights: &self.weights,
                rows: &self.rows,
                lengths: &self.lengths,
            },
        )
    }

    /// See [`dpo_loss`].
    fn preference(
        &mut self,
        new: &Tensor,
        signs: &Tensor,
        lesson: &Lesson<'_>,
        totals: &mut Totals,
    ) -> Result<Loss> {
        let _ = self.before(new, totals)?; // notes how far the sampler was from the policy
        let reference = self.reference.as_ref().ok_or_else(|| missing("reference"))?;
        let inputs = PairInputs {
            new,
            reference,
            signs,
            pairs: &self.questions,
            num_pairs: self.num_questions,
        };
        let margins = margins(&inputs, lesson.settings.dpo.beta)?;
        totals.margins.extend(Vec::<f64>::try_from(&margins.f_detach()?.f_to_kind(Kind::Double)?)?);
        Ok(Loss {
            kl_sum: Some(kl_sum(&inputs)?),
            ..Loss::alone(dpo_loss(&margins, totals.questions)?)
        })
    }

    fn value_loss(
        &self,
        model: &Model,
        hidden: &Tensor,
        lesson: &Lesson<'_>,
        totals: &mut Totals,
    ) -> Result<Option<Tensor>> {
        let Some(critic) = lesson.critic else { return Ok(None) };
        let targets = lesson.targets().ok_or_else(|| missing("targets"))?;
        let old = self.values.as_ref().ok_or_else(|| missing("values"))?;
        let value_loss = critic.loss(hidden, old, &self.flat(targets, model)?, &self.weights)?;
        totals.critic.loss += value_loss.loss.f_double_value(&[])?;
        totals.critic.clip_ratio += value_loss.clipped;
        Ok(Some(value_loss.loss))
    }
}

/// What an update of this algorithm needs is not there.
fn missing(what: &'static str) -> LearnError {
    LearnError::Input { what, expected: "one number for each token".into(), got: "none".into() }
}

/// `policy` and `sampled` `[n]`, n > 0.
fn mismatch(policy: &Tensor, sampled: &Tensor) -> Result<Mismatch> {
    let gap = policy.f_sub(sampled)?.f_to_kind(Kind::Double)?;
    let (apart, ratio) = (gap.f_abs()?, gap.f_exp()?);
    Ok(Mismatch {
        difference_mean: apart.f_mean(Kind::Double)?.f_double_value(&[])?,
        difference_max: apart.f_max()?.f_double_value(&[])?,
        ratio_min: ratio.f_min()?.f_double_value(&[])?,
        ratio_mean: ratio.f_mean(Kind::Double)?.f_double_value(&[])?,
        ratio_max: ratio.f_max()?.f_double_value(&[])?,
    })
}

/// Returns the report of an iteration over mini-batches, each with its number of tokens: means, and
/// the last learning rate.
pub(crate) fn mean_report(parts: &[(usize, UpdateReport)]) -> UpdateReport {
    let Some((_, last)) = parts.last() else { return UpdateReport::default() };
    if parts.len() == 1 {
        return *last;
    }
    let mean = |of: &dyn Fn(&UpdateReport) -> f64| {
        parts.iter().map(|(_, part)| of(part)).sum::<f64>() / parts.len() as f64
    };
    let mismatches: Vec<(usize, Mismatch)> =
        parts.iter().filter_map(|(tokens, part)| Some((*tokens, part.mismatch?))).collect();
    let of_critic =
        |of: fn(&CriticReport) -> f64| mean(&|part| part.critic.as_ref().map_or(0.0, of));
    UpdateReport {
        loss: mean(&|part| part.loss),
        kl: last.kl.map(|_| mean(&|part| part.kl.unwrap_or(0.0))),
        grad_norm: mean(&|part| part.grad_norm),
        entropy: mean(&|part| part.entropy),
        clip_ratio_low: mean(&|part| part.clip_ratio_low),
        clip_ratio_high: mean(&|part| part.clip_ratio_high),
        mismatch: joined(&mismatches),
        critic: last.critic.map(|_| CriticReport {
            loss: of_critic(|critic| critic.loss),
            clip_ratio: of_critic(|critic| critic.clip_ratio),
            explained_variance: of_critic(|critic| critic.explained_variance),
        }),
        ..*last
    }
}

/// Returns the mismatch of several parts together, each with its number of tokens; `None` without
/// parts.
fn joined(parts: &[(usize, Mismatch)]) -> Option<Mismatch> {
    let (_, mut all) = *parts.first()?;
    let mut num_tokens = 0.0;
    let mut difference_sum = 0.0;
    let mut ratio_sum = 0.0;
    for (tokens, part) in parts {
        num_tokens += *tokens as f64;
        difference_sum += part.difference_mean * *tokens as f64;
        ratio_sum += part.ratio_mean * *tokens as f64;
        all.difference_max = all.difference_max.max(part.difference_max);
        all.ratio_min = all.ratio_min.min(part.ratio_min);
        all.ratio_max = all.ratio_max.max(part.ratio_max);
    }
    all.difference_mean = difference_sum / num_tokens;
    all.ratio_mean = ratio_sum / num_tokens;
    Some(all)
}

#[cfg(test)]
mod tests;

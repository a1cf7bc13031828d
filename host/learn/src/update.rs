//! The gradient of one step: micro-batches of similar length, accumulated.

use std::cmp::Reverse;

use corver_core::update::OldLogProbs;
use corver_core::{LearnSettings, Mismatch, Rollout, UpdateReport};
use tch::{Kind, Tensor};

use crate::error::Result;
use crate::loss::{LossInputs, grpo_loss, row_weights};
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
    batches: Vec<Batch>,
}

/// The loss's gradient by the adapters, and the report so far.
pub(crate) struct Gradient {
    pub(crate) gradients: Vec<Tensor>,
    /// Without gradient norm and learning rate.
    pub(crate) report: UpdateReport,
}

/// What the micro-batches add up.
#[derive(Default)]
struct Totals {
    loss: f64,
    kl: f64,
    entropy: f64,
    clipped_low: f64,
    clipped_high: f64,
    /// Of the first iteration.
    mismatch: Vec<(usize, Mismatch)>,
}

/// Cuts the rows into micro-batches, and asks the base model for its log-probabilities where the loss compares with them.
pub(crate) fn prepare(
    model: &mut Model,
    rows: &[Row<'_>],
    settings: &LearnSettings,
    temperature: f64,
    max_completion_length: usize,
) -> Result<Prepared> {
    let lengths: Vec<usize> = rows.iter().map(|row| row.rollout.tokens.len()).collect();
    let weights = row_weights(settings.loss.loss_type, &lengths, max_completion_length, lengths.iter().sum());
    let were_on = model.set_adapters(false);
    let batches = micro_batches(rows, settings.micro_batch_tokens).into_iter().map(|members| {
        let mut batch = Batch::new(model, rows, &weights, members)?;
        if settings.loss.beta != 0.0 {
            let _guard = tch::no_grad_guard();
            batch.reference = Some(log_probs(model, &batch.hidden(model)?, &batch.targets, temperature)?);
        }
        Ok(batch)
    });
    let batches = batches.collect::<Result<Vec<_>>>();
    model.set_adapters(were_on);
    Ok(Prepared { lengths, batches: batches? })
}

/// The gradient of the loss; `advantages` are one list per row, of its length.
pub(crate) fn gradient(
    model: &mut Model,
    prepared: &mut Prepared,
    advantages: &[Vec<f64>],
    settings: &LearnSettings,
    temperature: f64,
) -> Result<Gradient> {
    let were_on = model.set_adapters(true);
    let result = accumulate(model, prepared, advantages, settings, temperature);
    model.set_adapters(were_on);
    result
}

fn accumulate(
    model: &Model,
    prepared: &mut Prepared,
    advantages: &[Vec<f64>],
    settings: &LearnSettings,
    temperature: f64,
) -> Result<Gradient> {
    let num_tokens: usize = prepared.lengths.iter().sum();
    let parameters: Vec<Tensor> = model.lora_parameters().into_iter().map(|(_, t)| t.shallow_clone()).collect();
    let mut gradients = parameters.iter().map(|p| Ok(p.f_zeros_like()?)).collect::<Result<Vec<_>>>()?;
    let mut totals = Totals::default();
    for batch in &mut prepared.batches {
        let surrogate = batch.surrogate(model, advantages, settings, temperature, &mut totals)?;
        let part = Tensor::f_run_backward(&[surrogate], &parameters, false, false)?;
        for (sum, part) in gradients.iter_mut().zip(&part) {
            let _ = sum.f_add_(part)?;
        }
    }
    let per_token = |sum: f64| sum / num_tokens.max(1) as f64;
    let report = UpdateReport {
        loss: totals.loss,
        kl: (settings.loss.beta != 0.0).then(|| per_token(totals.kl)),
        entropy: per_token(totals.entropy),
        clip_ratio_low: per_token(totals.clipped_low),
        clip_ratio_high: per_token(totals.clipped_high),
        mismatch: joined(&totals.mismatch),
        ..UpdateReport::default()
    };
    Ok(Gradient { gradients, report })
}

/// Row numbers, those of one question next to each other and the longest first, cut so that no part has more than `limit` tokens
/// (one row always fits). A prompt counts once in each part. Rows without tokens have no gradient and are left out.
fn micro_batches(rows: &[Row<'_>], limit: usize) -> Vec<Vec<usize>> {
    let length = |n: usize| rows[n].rollout.tokens.len();
    let mut order: Vec<usize> = (0..rows.len()).filter(|&n| length(n) > 0).collect();
    order.sort_by_key(|&n| (rows[n].rollout.question, Reverse(length(n))));
    let mut parts: Vec<Vec<usize>> = Vec::new();
    let mut tokens = 0;
    for n in order {
        let shares_prompt = |part: &Vec<usize>| rows[part[part.len() - 1]].rollout.question == rows[n].rollout.question;
        let more = |part: &Vec<usize>| length(n) + if shares_prompt(part) { 0 } else { rows[n].prompt.len() };
        match parts.last_mut().filter(|part| tokens + more(part) <= limit) {
            Some(part) => {
                tokens += more(part);
                part.push(n);
            }
            None => {
                tokens = rows[n].prompt.len() + length(n);
                parts.push(vec![n]);
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
    /// `[n]` f32, the log-probabilities that the importance ratio compares with; `None`: the policy's own.
    old: Option<Tensor>,
    /// `[n]` f32, the base model's.
    reference: Option<Tensor>,
    /// `[n]` f32
    sampled: Tensor,
    /// `[n]` f32
    weights: Tensor,
    /// `[n]` i64
    rows: Tensor,
    /// `[B]` i64
    lengths: Tensor,
}

impl Batch {
    fn new(model: &Model, all: &[Row<'_>], weight_of: &[f64], members: Vec<usize>) -> Result<Self> {
        let row = |&n: &usize| &all[n];
        let of_question: Vec<_> = members.chunk_by(|a, b| row(a).rollout.question == row(b).rollout.question).collect();
        let seen = |row: &Row<'_>| row.rollout.tokens.len() - 1;
        let groups: Vec<_> = of_question
            .iter()
            .map(|rows| {
                let completions = rows.iter().map(|n| &row(n).rollout.tokens[..seen(row(n))]);
                (row(&rows[0]).prompt, completions.collect())
            })
            .collect();
        let packed = Packed::new(model, &groups)?;
        let (mut next, mut last_of_prompt) = (0, 0); // in the flat list
        let (mut places, mut targets, mut rows) = (Vec::new(), Vec::new(), Vec::new());
        let (mut sampled, mut weights) = (Vec::new(), Vec::new());
        for (n, member) in members.iter().enumerate() {
            let Row { prompt, rollout } = row(member);
            if n == 0 || row(&members[n - 1]).rollout.question != rollout.question {
                next += prompt.len() as i64;
                last_of_prompt = next - 1;
            }
            let behind = seen(row(member)) as i64;
            places.push(last_of_prompt);
            places.extend(next..next + behind);
            next += behind;
            targets.extend(rollout.tokens.iter().map(|&id| i64::from(id)));
            rows.resize(places.len(), n as i64);
            sampled.extend_from_slice(&rollout.log_probs);
            weights.resize(places.len(), weight_of[*member] as f32);
        }
        let lengths: Vec<i64> = members.iter().map(|n| row(n).rollout.tokens.len() as i64).collect();
        let device = model.device();
        let integers = |values: &[i64]| Tensor::f_from_slice(values).and_then(|t| t.f_to_device(device));
        let floats = |values: &[f32]| Tensor::f_from_slice(values).and_then(|t| t.f_to_device(device));
        Ok(Self {
            packed,
            places: integers(&places)?,
            targets: integers(&targets)?,
            old: None,
            reference: None,
            sampled: floats(&sampled)?,
            weights: floats(&weights)?,
            rows: integers(&rows)?,
            lengths: integers(&lengths)?,
            members,
        })
    }

    /// `[n, D]`
    fn hidden(&self, model: &Model) -> Result<Tensor> {
        Ok(model.hidden_packed(&self.packed)?.f_index_select(0, &self.places)?)
    }

    /// A scalar whose gradient by the adapters is the loss's. (Its value is not the loss, which goes into `totals`.)
    fn surrogate(
        &mut self,
        model: &Model,
        advantages: &[Vec<f64>],
        settings: &LearnSettings,
        temperature: f64,
        totals: &mut Totals,
    ) -> Result<Tensor> {
        let advantages: Vec<f32> = self.members.iter().flat_map(|&n| &advantages[n]).map(|&a| a as f32).collect();
        let advantages = Tensor::f_from_slice(&advantages)?.f_to_device(model.device())?;
        let hidden = self.hidden(model)?;
        let scores = score(model, &hidden, &self.targets, temperature)?;
        let new = scores.log_probs.set_requires_grad(true);
        // What further iterations compare with is the policy before the first one.
        let before = match &self.old {
            Some(before) => before,
            None => {
                let before = self.old.insert(new.f_detach()?);
                totals.mismatch.push((self.weights.numel(), mismatch(before, &self.sampled)?));
                before
            }
        };
        let (old, cap) = match settings.old_log_probs {
            OldLogProbs::Sampled => (&self.sampled, 0.0),
            OldLogProbs::Recomputed => (before, settings.loss.importance_cap.unwrap_or(0.0)),
        };
        let correction = match cap > 0.0 {
            true => Some(before.f_sub(&self.sampled)?.f_exp()?.f_clamp_max(cap)?),
            false => None,
        };
        let loss = grpo_loss(
            &settings.loss,
            &LossInputs {
                new: &new,
                old: Some(old),
                correction: correction.as_ref(),
                reference: self.reference.as_ref(),
                advantages: &advantages,
                weights: &self.weights,
                rows: &self.rows,
                lengths: &self.lengths,
            },
        )?;
        totals.loss += loss.loss.f_double_value(&[])?;
        totals.kl += loss.kl_sum.unwrap_or(0.0);
        totals.entropy += scores.entropy.f_sum(Kind::Double)?.f_double_value(&[])?;
        totals.clipped_low += loss.clipped_low;
        totals.clipped_high += loss.clipped_high;
        let outer = Tensor::f_run_backward(&[loss.loss], &[&new], false, false)?.remove(0); // [n]
        let pull = scores.slopes.f_mul(&outer.f_unsqueeze(1)?)?; // [n, D]: derivative of the loss by `hidden`
        Ok(hidden.f_to_kind(Kind::Float)?.f_mul(&pull)?.f_sum(Kind::Float)?)
    }
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

/// The mismatch of several parts together, each with its number of tokens.
fn joined(parts: &[(usize, Mismatch)]) -> Option<Mismatch> {
    let tokens: usize = parts.iter().map(|(tokens, _)| tokens).sum();
    let mean =
        |of: fn(&Mismatch) -> f64| parts.iter().map(|(n, part)| of(part) * *n as f64).sum::<f64>() / tokens as f64;
    parts
        .iter()
        .map(|(_, part)| *part)
        .reduce(|a, b| Mismatch {
            difference_max: a.difference_max.max(b.difference_max),
            ratio_min: a.ratio_min.min(b.ratio_min),
            ratio_max: a.ratio_max.max(b.ratio_max),
            ..a
        })
        .map(|extremes| Mismatch {
            difference_mean: mean(|part| part.difference_mean),
            ratio_mean: mean(|part| part.ratio_mean),
            ..extremes
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{stirred, tiny};
    use corver_core::update::{LoraSettings, LossSettings, LossType};

    fn rollout(question: usize, tokens: &[u32], log_probs: f32) -> Rollout {
        Rollout {
            question,
            tokens: tokens.into(),
            log_probs: vec![log_probs; tokens.len()],
            text: String::new(),
            token_spans: vec![None; tokens.len()],
            finished: true,
        }
    }

    /// Prompts, rollouts and advantages of three rows of different lengths, and one without tokens.
    type Data = (Vec<Vec<u32>>, Vec<Rollout>, Vec<Vec<f64>>);

    fn data() -> Data {
        let prompts = vec![vec![1, 2, 3], vec![4, 5, 6, 7, 8]];
        let rollouts = vec![
            rollout(0, &[9, 10, 11, 12], -3.0),
            rollout(0, &[13, 2], -3.2),
            rollout(1, &[3, 17, 5], -2.9),
            rollout(1, &[], 0.0),
        ];
        let advantages = vec![vec![0.5, -1.0, 2.0, 0.25], vec![-0.5, 1.5], vec![1.0, 1.0, -2.0], vec![]];
        (prompts, rollouts, advantages)
    }

    fn run(model: &mut Model, (prompts, rollouts, advantages): &Data, settings: &LearnSettings) -> Gradient {
        let mut prepared = prepare(model, &rows(prompts, rollouts), settings, 0.8, 10).unwrap();
        gradient(model, &mut prepared, advantages, settings, 0.8).unwrap()
    }

    fn rows<'a>(prompts: &'a [Vec<u32>], rollouts: &'a [Rollout]) -> Vec<Row<'a>> {
        rollouts.iter().map(|rollout| Row { prompt: &prompts[rollout.question], rollout }).collect()
    }

    fn settings(loss_type: LossType, old_log_probs: OldLogProbs) -> LearnSettings {
        // Wide clipping: a kink of the loss would spoil the finite differences.
        let loss =
            LossSettings { loss_type, beta: 0.3, epsilon_low: 0.9, epsilon_high: 9.0, ..LossSettings::default() };
        LearnSettings { loss, old_log_probs, ..LearnSettings::default() }
    }

    #[test]
    fn gradients_agree_with_finite_differences() {
        for (family, loss_type) in [
            ("llama", LossType::Grpo),
            ("qwen2", LossType::Bnpo),
            ("qwen3", LossType::DrGrpo),
            ("olmo2", LossType::Dapo),
        ] {
            let settings = settings(loss_type, OldLogProbs::Sampled);
            let mut model = stirred(family, &LoraSettings { r: 2, alpha: 4.0 });
            let data = data();
            let got = run(&mut model, &data, &settings).gradients;
            let parameters: Vec<Tensor> = model.lora_parameters().into_iter().map(|(_, t)| t.shallow_clone()).collect();
            let h = 4e-3;
            for (parameter, gradient) in parameters.iter().zip(&got).step_by(3) {
                let mut place = parameter.detach().view(-1).narrow(0, parameter.numel() as i64 / 2, 1);
                let loss_at = |model: &mut Model, place: &mut Tensor, shift: f64| {
                    let _ = place.g_add_scalar_(shift);
                    let loss = run(model, &data, &settings).report.loss;
                    let _ = place.g_add_scalar_(-shift);
                    loss
                };
                let slope = (loss_at(&mut model, &mut place, h) - loss_at(&mut model, &mut place, -h)) / (2.0 * h);
                let got = gradient.view(-1).double_value(&[parameter.numel() as i64 / 2]);
                assert!((slope - got).abs() < 2e-3 + 0.02 * got.abs(), "{family}: {slope} {got}");
            }
        }
    }

    #[test]
    fn micro_batches_add_up_to_the_full_batch() {
        for loss_type in [LossType::Grpo, LossType::Bnpo, LossType::DrGrpo, LossType::Dapo] {
            let whole = settings(loss_type, OldLogProbs::Recomputed);
            let split = LearnSettings { micro_batch_tokens: 1, ..whole };
            let mut model = stirred("qwen3", &LoraSettings { r: 2, alpha: 4.0 });
            let (a, b) = (run(&mut model, &data(), &whole), run(&mut model, &data(), &split));
            assert!((a.report.loss - b.report.loss).abs() < 1e-5);
            assert!((a.report.kl.unwrap() - b.report.kl.unwrap()).abs() < 1e-5);
            assert!((a.report.entropy - b.report.entropy).abs() < 1e-5);
            for (a, b) in a.gradients.iter().zip(&b.gradients) {
                assert!((a - b).abs().max().double_value(&[]) < 1e-5);
            }
        }
    }

    #[test]
    fn further_iterations_compare_with_the_policy_before_the_first() {
        let settings = settings(LossType::Grpo, OldLogProbs::Recomputed);
        let mut model = stirred("llama", &LoraSettings { r: 2, alpha: 4.0 });
        let (prompts, mut rollouts, advantages) = data();
        let mut prepared = prepare(&mut model, &rows(&prompts, &rollouts), &settings, 0.8, 10).unwrap();
        gradient(&mut model, &mut prepared, &advantages, &settings, 0.8).unwrap();
        // The same log-probabilities, noted in the rollouts.
        for batch in &prepared.batches {
            let mut old = Vec::<f32>::try_from(batch.old.as_ref().unwrap()).unwrap().into_iter();
            for &member in &batch.members {
                rollouts[member].log_probs = old.by_ref().take(rollouts[member].tokens.len()).collect();
            }
        }
        for (_, parameter) in model.lora_parameters() {
            let _guard = tch::no_grad_guard();
            let _ = parameter.shallow_clone().g_mul_scalar_(1.5);
        }
        let second = gradient(&mut model, &mut prepared, &advantages, &settings, 0.8).unwrap();
        let sampled = LearnSettings { old_log_probs: OldLogProbs::Sampled, ..settings };
        let expected = run(&mut model, &(prompts, rollouts, advantages), &sampled);
        assert!((second.report.loss - expected.report.loss).abs() < 1e-6);
        assert!((second.report.loss - run(&mut model, &data(), &settings).report.loss).abs() > 1e-5, "a ratio of 1");
        for (got, expected) in second.gradients.iter().zip(&expected.gradients) {
            assert!((got - expected).abs().max().double_value(&[]) < 1e-6);
        }
    }

    #[test]
    fn a_sampler_that_is_not_quite_the_policy_is_measured_and_corrected() {
        let plain = settings(LossType::Grpo, OldLogProbs::Recomputed);
        let plain = LearnSettings { loss: LossSettings { beta: 0.0, ..plain.loss }, ..plain };
        let mut model = stirred("llama", &LoraSettings { r: 2, alpha: 4.0 });
        let (prompts, mut rollouts, advantages) = data();
        let mut prepared = prepare(&mut model, &rows(&prompts, &rollouts), &plain, 0.8, 10).unwrap();
        gradient(&mut model, &mut prepared, &advantages, &plain, 0.8).unwrap();
        let gap = 2f32.ln(); // the sampler found every token half as probable
        for batch in &prepared.batches {
            let mut old = Vec::<f32>::try_from(batch.old.as_ref().unwrap()).unwrap().into_iter();
            for &member in &batch.members {
                let tokens = rollouts[member].tokens.len();
                rollouts[member].log_probs = old.by_ref().take(tokens).map(|own| own - gap).collect();
            }
        }
        let data = (prompts, rollouts, advantages);
        let uncorrected = run(&mut model, &data, &plain);
        let split = run(&mut model, &data, &LearnSettings { micro_batch_tokens: 1, ..plain });
        for mismatch in [uncorrected.report.mismatch.unwrap(), split.report.mismatch.unwrap()] {
            let Mismatch { difference_mean, difference_max, ratio_min, ratio_mean, ratio_max } = mismatch;
            for (got, expected) in [
                (difference_mean, f64::from(gap)),
                (difference_max, f64::from(gap)),
                (ratio_min, 2.0),
                (ratio_mean, 2.0),
                (ratio_max, 2.0),
            ] {
                assert!((got - expected).abs() < 1e-4, "{mismatch:?}");
            }
        }
        for (cap, weight) in [(0.0, 1.0), (1.5, 1.5), (8.0, 2.0)] {
            let loss = LossSettings { importance_cap: Some(cap), ..plain.loss };
            let corrected = run(&mut model, &data, &LearnSettings { loss, ..plain });
            for (got, one) in corrected.gradients.iter().zip(&uncorrected.gradients) {
                assert!((got - one * weight).abs().max().double_value(&[]) < 1e-5, "{cap}");
            }
        }
    }

    #[test]
    fn the_reference_is_the_model_without_adapters() {
        let settings = settings(LossType::Grpo, OldLogProbs::Recomputed);
        let mut fresh = tiny("llama", 1);
        fresh.add_lora(&LoraSettings { r: 2, alpha: 4.0 }, 3).unwrap();
        assert_eq!(run(&mut fresh, &data(), &settings).report.kl, Some(0.0));
        let mut model = stirred("llama", &LoraSettings { r: 2, alpha: 4.0 });
        assert!(run(&mut model, &data(), &settings).report.kl.unwrap() > 1e-6);
        let without = LearnSettings { loss: LossSettings { beta: 0.0, ..settings.loss }, ..settings };
        assert_eq!(run(&mut model, &data(), &without).report.kl, None);
    }

    #[test]
    fn the_split_honours_the_limit() {
        let (prompts, rollouts, _) = data();
        let rows = rows(&prompts, &rollouts);
        assert_eq!(micro_batches(&rows, 1000), [vec![0, 1, 2]]);
        assert_eq!(micro_batches(&rows, 17), [vec![0, 1, 2]], "3 + 4 + 2 of the first question, 5 + 3 of the second");
        assert_eq!(micro_batches(&rows, 16), [vec![0, 1], vec![2]]);
        assert_eq!(micro_batches(&rows, 8), [vec![0], vec![1], vec![2]]);
        assert_eq!(micro_batches(&rows, 1), [vec![0], vec![1], vec![2]]);
    }
}

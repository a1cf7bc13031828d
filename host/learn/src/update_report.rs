//! The report of an update, from the sums over its micro-batches.

use corver_core::update::{CriticReport, PreferenceReport};
use corver_core::{Mismatch, UpdateReport};
use tch::{Kind, Tensor};

use crate::error::Result;

/// Sums over the micro-batches of one optimiser step.
#[derive(Default)]
pub(crate) struct UpdateTotals {
    /// Loss of the policy.
    pub(crate) loss: f64,
    /// Sum of k3 over the tokens, nats.
    pub(crate) kl: f64,
    /// Sum over the tokens, nats.
    pub(crate) entropy: f64,
    /// Tokens that the lower clip bound affects.
    pub(crate) clipped_low: f64,
    /// Tokens that the upper clip bound affects.
    pub(crate) clipped_high: f64,
    /// Number of tokens and mismatch of each micro-batch; empty after the first iteration.
    pub(crate) mismatches: Vec<(usize, Mismatch)>,
    /// DPO's margin of each pair.
    pub(crate) margins: Vec<f64>,
    /// Loss of the critic.
    pub(crate) value_loss: f64,
    /// Tokens whose value loss is the clipped one.
    pub(crate) clipped_values: f64,
}

impl UpdateTotals {
    /// Adds the sums of one micro-batch.
    pub(crate) fn add(&mut self, part: Self) {
        self.loss += part.loss;
        self.kl += part.kl;
        self.entropy += part.entropy;
        self.clipped_low += part.clipped_low;
        self.clipped_high += part.clipped_high;
        self.mismatches.extend(part.mismatches);
        self.margins.extend(part.margins);
        self.value_loss += part.value_loss;
        self.clipped_values += part.clipped_values;
    }
}

/// Returns means over the pairs of a step; zeros if there are none.
pub(crate) fn preference_report(margins: &[f64]) -> PreferenceReport {
    let pairs = margins.len() as f64;
    let divisor = pairs.max(1.0);
    let preferred = margins.iter().filter(|margin| **margin > 0.0).count() as f64;
    PreferenceReport {
        pairs,
        margin: margins.iter().sum::<f64>() / divisor,
        accuracy: preferred / divisor,
    }
}

/// Compares the log-probabilities of the policy with those of the sampler, both `[n]` with n > 0.
pub(crate) fn mismatch(policy: &Tensor, sampled: &Tensor) -> Result<Mismatch> {
    let gap = policy.f_sub(sampled)?.f_to_kind(Kind::Double)?;
    let difference = gap.f_abs()?;
    let ratio = gap.f_exp()?;
    Ok(Mismatch {
        difference_mean: difference.f_mean(Kind::Double)?.f_double_value(&[])?,
        difference_max: difference.f_max()?.f_double_value(&[])?,
        ratio_min: ratio.f_min()?.f_double_value(&[])?,
        ratio_mean: ratio.f_mean(Kind::Double)?.f_double_value(&[])?,
        ratio_max: ratio.f_max()?.f_double_value(&[])?,
    })
}

/// Pools the mismatches of several parts, each with its number of tokens; `None` without parts.
pub(crate) fn pool_mismatches(parts: &[(usize, Mismatch)]) -> Option<Mismatch> {
    let mut pooled = parts.first()?.1;
    let mut num_tokens = 0.0;
    let mut difference_sum = 0.0;
    let mut ratio_sum = 0.0;
    for (tokens, part) in parts {
        num_tokens += *tokens as f64;
        difference_sum += part.difference_mean * *tokens as f64;
        ratio_sum += part.ratio_mean * *tokens as f64;
        pooled.difference_max = pooled.difference_max.max(part.difference_max);
        pooled.ratio_min = pooled.ratio_min.min(part.ratio_min);
        pooled.ratio_max = pooled.ratio_max.max(part.ratio_max);
    }
    pooled.difference_mean = difference_sum / num_tokens;
    pooled.ratio_mean = ratio_sum / num_tokens;
    Some(pooled)
}

/// Averages the reports of the mini-batches of one iteration, each with its number of tokens: means
/// over tokens by these numbers; losses and the norm of the gradient, which belong to an optimiser
/// step, over the steps. The learning rate is the last one's.
pub(crate) fn mean_report(parts: &[(usize, UpdateReport)]) -> UpdateReport {
    let Some((_, last)) = parts.last() else { return UpdateReport::default() };
    if parts.len() == 1 {
        return *last;
    }
    let mut mismatches = Vec::new();
    for (tokens, part) in parts {
        if let Some(mismatch) = part.mismatch {
            mismatches.push((*tokens, mismatch));
        }
    }
    UpdateReport {
        loss: step_mean(parts, |part| part.loss),
        kl: last.kl.map(|_| token_mean(parts, |part| part.kl.unwrap_or(0.0))),
        grad_norm: step_mean(parts, |part| part.grad_norm),
        entropy: token_mean(parts, |part| part.entropy),
        clip_ratio_low: token_mean(parts, |part| part.clip_ratio_low),
        clip_ratio_high: token_mean(parts, |part| part.clip_ratio_high),
        mismatch: pool_mismatches(&mismatches),
        critic: last.critic.map(|last_critic| CriticReport {
            loss: step_mean(parts, |part| part.critic.map_or(0.0, |critic| critic.loss)),
            clip_ratio: token_mean(parts, |part| {
                part.critic.map_or(0.0, |critic| critic.clip_ratio)
            }),
            // The same in every part: it is that of all rows, before the update.
            explained_variance: last_critic.explained_variance,
        }),
        ..*last
    }
}

/// Returns the mean of a figure over the optimiser steps.
fn step_mean(parts: &[(usize, UpdateReport)], figure: fn(&UpdateReport) -> f64) -> f64 {
    parts.iter().map(|(_, part)| figure(part)).sum::<f64>() / parts.len() as f64
}

/// Returns the mean over all tokens of a figure that is a mean over the tokens of each part, or 0 if
/// there are no tokens.
fn token_mean(parts: &[(usize, UpdateReport)], figure: fn(&UpdateReport) -> f64) -> f64 {
    let mut num_tokens = 0;
    let mut sum = 0.0;
    for (tokens, part) in parts {
        num_tokens += *tokens;
        sum += figure(part) * *tokens as f64;
    }
    sum / num_tokens.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a report whose figures per token and per step are these.
    fn report(of_tokens: f64, of_step: f64) -> UpdateReport {
        UpdateReport {
            loss: of_step,
            kl: Some(of_tokens),
            grad_norm: of_step,
            learning_rate: of_step,
            entropy: of_tokens,
            clip_ratio_low: of_tokens,
            clip_ratio_high: of_tokens,
            critic: Some(CriticReport {
                loss: of_step,
                clip_ratio: of_tokens,
                explained_variance: 0.25,
            }),
            ..UpdateReport::default()
        }
    }

    #[test]
    fn mini_batches_count_by_their_tokens() {
        // 30 tokens with 0.5 and 10 with 0.1; two steps with 1 and 3.
        let mean = mean_report(&[(30, report(0.5, 1.0)), (10, report(0.1, 3.0))]);
        let critic = mean.critic.unwrap();
        for got in [
            mean.kl.unwrap(),
            mean.entropy,
            mean.clip_ratio_low,
            mean.clip_ratio_high,
            critic.clip_ratio,
        ] {
            assert!((got - 0.4).abs() < 1e-12, "{mean:?}");
        }
        assert_eq!((mean.loss, mean.grad_norm, critic.loss), (2.0, 2.0, 2.0));
        assert_eq!((mean.learning_rate, critic.explained_variance), (3.0, 0.25));
        let empty = mean_report(&[(0, report(0.0, 0.0)), (0, report(0.0, 0.0))]);
        assert_eq!((empty.kl, empty.entropy), (Some(0.0), 0.0));
    }
}

//! Supervised training of all weights: what makes the demo's policy and extractor.
//!
//! Next-token cross-entropy over the marked tokens, AdamW, cosine schedule, gradient clipping; f32
//! only.

use corver_core::AdamWSettings;
use serde::{Deserialize, Serialize};
use tch::{Kind, Reduction, Tensor};

use crate::error::{LearnError, Result};
use crate::model::Model;
use crate::optimizer::{AdamW, clip_gradients};
use crate::schedule::CosineSchedule;

/// One training sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Example {
    /// `[T]` ids, prompt and target together.
    pub tokens: Vec<u32>,
    /// `[T]` whether the model is to learn to predict this token from those before it; the first
    /// one never is.
    pub learn: Vec<bool>,
}

impl Example {
    /// A prompt to read and a target to learn.
    #[must_use]
    pub fn new(prompt: &[u32], target: &[u32]) -> Self {
        let mut learn = vec![false; prompt.len()];
        learn.resize(prompt.len() + target.len(), true);
        Self { tokens: [prompt, target].concat(), learn }
    }
}

/// How to train.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FitSettings {
    /// Optimiser steps.
    pub steps: usize,
    /// Peak rate.
    pub learning_rate: f64,
    /// Share of the steps in which the rate rises.
    pub warmup_ratio: f64,
    /// Limit of the gradients' joint L2 norm.
    pub max_grad_norm: f64,
    /// The optimiser's constants.
    pub optimizer: AdamWSettings,
}

impl Default for FitSettings {
    fn default() -> Self {
        let optimizer =
            AdamWSettings { beta2: 0.99, weight_decay: 0.01, ..AdamWSettings::with_f32_moments() };
        Self { steps: 1000, learning_rate: 2e-3, warmup_ratio: 0.03, max_grad_norm: 1.0, optimizer }
    }
}

/// Trains all weights of `model` on the batches that `batch` returns for step 0, 1, …; returns each
/// step's loss: the mean over the learned tokens of −log p, nats. Sequences of similar length in
/// one batch train fastest.
///
/// # Errors
/// A model that is not f32, a batch with nothing to learn, ids outside the vocabulary, a loss that
/// is not finite, or whatever `batch` fails with.
pub fn fit<E: From<LearnError>>(
    model: &mut Model,
    settings: &FitSettings,
    mut batch: impl FnMut(usize) -> std::result::Result<Vec<Example>, E>,
) -> std::result::Result<Vec<f64>, E> {
    if model.kind() != Kind::Float {
        let got = format!("{:?}", model.kind());
        return Err(LearnError::Input {
            what: "model to train in full",
            expected: "f32 weights".into(),
            got,
        }
        .into());
    }
    model.train_all(true);
    let losses = descend(model, settings, &mut batch);
    model.train_all(false);
    losses
}

fn descend<E: From<LearnError>>(
    model: &Model,
    settings: &FitSettings,
    batch: &mut impl FnMut(usize) -> std::result::Result<Vec<Example>, E>,
) -> std::result::Result<Vec<f64>, E> {
    let parameters =
        model.parameters().into_iter().map(|(_, tensor)| tensor.shallow_clone()).collect();
    let mut optimizer = AdamW::new(parameters, settings.optimizer)?;
    let schedule =
        CosineSchedule::new(settings.learning_rate, settings.steps, settings.warmup_ratio);
    let mut losses = Vec::with_capacity(settings.steps);
    for step in 0..settings.steps {
        let loss = learn(
            model,
            &mut optimizer,
            settings.max_grad_norm,
            schedule.rate(step),
            &batch(step)?,
        )?;
        if !loss.is_finite() {
            return Err(LearnError::NotFinite { what: "loss", got: loss, step, batch: None }.into());
        }
        tracing::debug!(step, loss, "fit");
        losses.push(loss);
    }
    Ok(losses)
}

/// One step; returns the loss before it. A loss that is not finite changes nothing.
fn learn(
    model: &Model,
    optimizer: &mut AdamW,
    max_norm: f64,
    rate: f64,
    batch: &[Example],
) -> Result<f64> {
    let loss = cross_entropy(model, batch)?;
    let value = loss.f_double_value(&[])?;
    if value.is_finite() {
        let mut gradients = Tensor::f_run_backward(&[loss], optimizer.parameters(), false, false)?;
        clip_gradients(&mut gradients, max_norm)?;
        optimizer.step(&gradients, rate)?;
    }
    Ok(value)
}

/// Mean over the learned tokens of −log p, nats; a scalar with a graph. Only their rows of logits
/// are computed.
///
/// # Errors
/// As [`fit`].
pub fn cross_entropy(model: &Model, examples: &[Example]) -> Result<Tensor> {
    let rows: Vec<&[u32]> = examples.iter().map(|e| e.tokens.as_slice()).collect();
    let tokens = model.batch(&rows)?;
    let width = tokens.size()[1];
    let (mut places, mut targets) = (Vec::new(), Vec::new());
    for (row, example) in examples.iter().enumerate() {
        if example.learn.len() != example.tokens.len() {
            return Err(LearnError::Input {
                what: "learn",
                expected: format!("{} flags, one per token", example.tokens.len()),
                got: example.learn.len().to_string(),
            });
        }
        for (t, &id) in example.tokens.iter().enumerate().skip(1).filter(|&(t, _)| example.learn[t])
        {
            places.push(row as i64 * width + t as i64 - 1);
            targets.push(i64::from(id));
        }
    }
    if places.is_empty() {
        return Err(LearnError::Input {
            what: "batch",
            expected: "a token to learn".into(),
            got: "none".into(),
        });
    }
    let device = model.device();
    let places = Tensor::f_from_slice(&places)?.f_to_device(device)?;
    let targets = Tensor::f_from_slice(&targets)?.f_to_device(device)?;
    let hidden = model.hidden(&tokens)?.f_flatten(0, 1)?.f_index_select(0, &places)?; // [n, D]
    let logits = model.logits(&hidden)?;
    Ok(logits.f_cross_entropy_loss(&targets, None::<&Tensor>, Reduction::Mean, -100, 0.0)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tiny;

    #[test]
    fn sft_memorises_single_sequence() {
        let mut model = tiny("qwen3", 1);
        let example = Example::new(&[1, 2, 3], &[7, 5, 9, 4]);
        let settings = FitSettings { steps: 150, learning_rate: 1e-2, ..FitSettings::default() };
        let losses =
            fit(&mut model, &settings, |_| Ok::<_, LearnError>(vec![example.clone()])).unwrap();
        assert!(losses[0] > 2.0 && *losses.last().unwrap() < 0.05, "{losses:?}");
    }

    #[test]
    fn sft_loss_counts_only_marked_tokens() {
        let model = tiny("llama", 2);
        let both = Example { tokens: vec![1, 2, 3], learn: vec![true, true, true] };
        let last = Example { learn: vec![false, false, true], ..both.clone() };
        let first = Example { learn: vec![true, true, false], ..both.clone() };
        let loss =
            |e: &Example| cross_entropy(&model, std::slice::from_ref(e)).unwrap().double_value(&[]);
        assert!((loss(&both) - (loss(&first) + loss(&last)) / 2.0).abs() < 1e-6);
    }

    #[test]
    fn initial_sft_loss_equals_uniform_guess() {
        let model = tiny("qwen2", 3);
        let loss =
            cross_entropy(&model, &[Example::new(&[1], &[2, 3, 4])]).unwrap().double_value(&[]);
        assert!((loss - (model.config().vocab_size as f64).ln()).abs() < 0.2, "{loss}");
    }

    #[test]
    fn sft_batch_without_targets_is_rejected() {
        let model = tiny("llama", 4);
        assert!(matches!(
            cross_entropy(&model, &[Example::new(&[1, 2], &[])]),
            Err(LearnError::Input { .. })
        ));
    }
}

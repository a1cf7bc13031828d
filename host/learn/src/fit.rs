//! Supervised training of all weights, which produces the demo's policy and extractor.
//!
//! Next-token cross-entropy over the marked tokens, AdamW, cosine schedule, gradient clipping; f32
//! only.

use corver_core::AdamWSettings;
use tch::{Kind, Reduction, Tensor};

use crate::device::upload;
use crate::error::{LearnError, Result};
use crate::model::Model;
use crate::optimizer::{AdamW, clip_gradients};
use crate::schedule::CosineSchedule;

/// A training sequence with its learned tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Example {
    /// `[T]` ids, prompt and target together.
    pub tokens: Vec<u32>,
    /// `[T]` true if the loss includes this token. The first token never counts, because no token is
    /// before it.
    pub learn: Vec<bool>,
}

impl Example {
    /// Joins a prompt, which the loss omits, and a target, which it includes.
    #[must_use]
    pub fn new(prompt: &[u32], target: &[u32]) -> Self {
        let mut learn = vec![false; prompt.len()];
        learn.resize(prompt.len() + target.len(), true);
        Self { tokens: [prompt, target].concat(), learn }
    }
}

/// Settings of a training with [`fit`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FitSettings {
    /// Number of optimiser steps.
    pub steps: usize,
    /// Peak of the learning rate.
    pub learning_rate: f64,
    /// Share of the steps that are warm-up, 0 to 1.
    pub warmup_ratio: f64,
    /// Largest joint L2 norm of the gradients.
    pub max_grad_norm: f64,
    /// Constants and precision of AdamW.
    pub optimizer: AdamWSettings,
}

impl Default for FitSettings {
    fn default() -> Self {
        let optimizer =
            AdamWSettings { beta2: 0.99, weight_decay: 0.01, ..AdamWSettings::with_f32_moments() };
        Self { steps: 1000, learning_rate: 2e-3, warmup_ratio: 0.03, max_grad_norm: 1.0, optimizer }
    }
}

/// Trains all weights of `model` on the batches that `batch` returns for step 0, 1, …
///
/// Returns the loss of each step: the mean over the learned tokens of −log p, nats. Batches of
/// sequences of similar length are fastest.
///
/// # Errors
/// Fails if the model is not f32, a batch has no token to learn or an id outside the vocabulary, the
/// loss is not finite, or `batch` fails.
pub fn fit<E: From<LearnError>>(
    model: &mut Model,
    settings: &FitSettings,
    mut batch: impl FnMut(usize) -> std::result::Result<Vec<Example>, E>,
) -> std::result::Result<Vec<f64>, E> {
    if model.kind() != Kind::Float {
        let error = LearnError::Input {
            what: "model to train in full",
            expected: "f32 weights".into(),
            got: format!("{:?}", model.kind()),
        };
        return Err(error.into());
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
        let rate = schedule.rate(step);
        let loss = train_step(model, &mut optimizer, settings.max_grad_norm, rate, &batch(step)?)?;
        if !loss.is_finite() {
            return Err(LearnError::NotFinite { what: "loss", got: loss, step, batch: None }.into());
        }
        tracing::debug!(step, loss, "fit");
        losses.push(loss);
    }
    Ok(losses)
}

/// Takes one step, and returns the loss before it. A loss that is not finite changes no weight.
fn train_step(
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

/// Returns the mean over the learned tokens of −log p, nats: a scalar with a graph. Logits are
/// computed for learned tokens only.
///
/// # Errors
/// Fails if there is no token to learn, or an id is outside the vocabulary.
fn cross_entropy(model: &Model, examples: &[Example]) -> Result<Tensor> {
    let rows: Vec<&[u32]> = examples.iter().map(|e| e.tokens.as_slice()).collect();
    let tokens = model.batch(&rows)?;
    let width = tokens.size()[1];
    let mut hidden_index = Vec::new();
    let mut targets = Vec::new();
    for (row, example) in examples.iter().enumerate() {
        if example.learn.len() != example.tokens.len() {
            return Err(LearnError::Input {
                what: "learn",
                expected: format!("{} flags, one per token", example.tokens.len()),
                got: example.learn.len().to_string(),
            });
        }
        for t in (1..example.tokens.len()).filter(|&t| example.learn[t]) {
            hidden_index.push(row as i64 * width + t as i64 - 1);
            targets.push(i64::from(example.tokens[t]));
        }
    }
    if targets.is_empty() {
        return Err(LearnError::Input {
            what: "batch",
            expected: "a token to learn".into(),
            got: "none".into(),
        });
    }
    let device = model.device();
    let index = upload(&hidden_index, device)?;
    let hidden = model.hidden(&tokens)?.f_flatten(0, 1)?.f_index_select(0, &index)?; // [n, D]
    let logits = model.logits(&hidden)?;
    let target_ids = upload(&targets, device)?;
    Ok(logits.f_cross_entropy_loss(&target_ids, None::<&Tensor>, Reduction::Mean, -100, 0.0)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tiny;

    #[test]
    fn fit_memorises_single_sequence() {
        let mut model = tiny("qwen3", 1);
        let example = Example::new(&[1, 2, 3], &[7, 5, 9, 4]);
        let settings = FitSettings { steps: 150, learning_rate: 1e-2, ..FitSettings::default() };
        let losses =
            fit(&mut model, &settings, |_| Ok::<_, LearnError>(vec![example.clone()])).unwrap();
        assert!(losses[0] > 2.0 && *losses.last().unwrap() < 0.05, "{losses:?}");
    }

    #[test]
    fn loss_counts_only_marked_tokens() {
        let model = tiny("llama", 2);
        let both = Example { tokens: vec![1, 2, 3], learn: vec![true, true, true] };
        let last = Example { learn: vec![false, false, true], ..both.clone() };
        let first = Example { learn: vec![true, true, false], ..both.clone() };
        let loss =
            |e: &Example| cross_entropy(&model, std::slice::from_ref(e)).unwrap().double_value(&[]);
        assert!((loss(&both) - (loss(&first) + loss(&last)) / 2.0).abs() < 1e-6);
    }

    #[test]
    fn initial_loss_equals_uniform_guess() {
        let model = tiny("qwen2", 3);
        let loss =
            cross_entropy(&model, &[Example::new(&[1], &[2, 3, 4])]).unwrap().double_value(&[]);
        assert!((loss - (model.config().vocab_size as f64).ln()).abs() < 0.2, "{loss}");
    }

    #[test]
    fn batch_without_targets_is_rejected() {
        let model = tiny("llama", 4);
        assert!(matches!(
            cross_entropy(&model, &[Example::new(&[1, 2], &[])]),
            Err(LearnError::Input { .. })
        ));
    }
}

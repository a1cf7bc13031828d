//! The training loop of both models.

use anyhow::Result;
use corver_learn::{Example, FitSettings, Model, fit};
use indicatif::{ProgressBar, ProgressStyle};
use rand::Rng;
use rand::seq::SliceRandom;

/// Batches drawn together and sorted by length, so that little of a batch is padding.
const BATCHES_PER_DRAW: usize = 8;

/// Settings of a training.
#[derive(Debug, Clone, Copy)]
pub struct Training {
    /// Seed of the training examples, their order, and the initial weights.
    pub seed: u64,
    /// Number of optimiser steps.
    pub steps: usize,
    /// Number of examples per step.
    pub batch: usize,
    /// Peak of the learning rate.
    pub learning_rate: f64,
}

impl Training {
    /// Trains all weights of `model`. `draw` returns the given number of examples.
    ///
    /// # Errors
    /// Fails if `draw` or libtorch fails.
    pub fn run<R: Rng>(
        &self,
        model: &mut Model,
        rng: &mut R,
        draw: impl Fn(usize, &mut R) -> Result<Vec<Example>>,
    ) -> Result<()> {
        let style = ProgressStyle::with_template("training [{bar:32}] {pos}/{len}, {eta} left")?
            .progress_chars("=> ");
        let bar = ProgressBar::new(self.steps as u64).with_style(style);
        let settings = FitSettings {
            steps: self.steps,
            learning_rate: self.learning_rate,
            ..FitSettings::default()
        };
        let mut batches = Batches { size: self.batch, ready: Vec::new() };
        let losses = fit(model, &settings, |step| {
            bar.set_position(step as u64);
            batches.next(rng, &draw)
        })?;
        bar.finish_and_clear();
        tracing::info!(first_loss = losses.first(), last_loss = losses.last(), "trained");
        Ok(())
    }
}

/// Batches of examples of similar lengths, in random order.
struct Batches {
    /// Number of examples in a batch.
    size: usize,
    ready: Vec<Vec<Example>>,
}

impl Batches {
    fn next<R: Rng>(
        &mut self,
        rng: &mut R,
        draw: impl Fn(usize, &mut R) -> Result<Vec<Example>>,
    ) -> Result<Vec<Example>> {
        if self.ready.is_empty() {
            let mut examples = draw(self.size * BATCHES_PER_DRAW, rng)?;
            examples.sort_by_key(|example| example.tokens.len());
            self.ready = examples.chunks(self.size).map(<[Example]>::to_vec).collect();
            self.ready.shuffle(rng);
        }
        Ok(self.ready.pop().unwrap_or_default())
    }
}

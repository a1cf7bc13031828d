//! What the trainings of both models share.

use anyhow::Result;
use corver_learn::{Example, FitSettings, Model, fit};
use indicatif::{ProgressBar, ProgressStyle};
use rand::Rng;
use rand::seq::SliceRandom;

/// Batches drawn together and sorted by length, so that little of a batch is padding.
const BATCHES_PER_DRAW: usize = 8;

/// How a model is trained.
#[derive(Debug, Clone, Copy)]
pub struct Training {
    /// Decides what the training examples are, their order, and the initial weights.
    pub seed: u64,
    /// Optimiser steps.
    pub steps: usize,
    /// Examples per step.
    pub batch: usize,
    /// Peak rate.
    pub learning_rate: f64,
}

impl Training {
    /// Trains all weights of `model`. `draw` makes examples, as many as it is told.
    ///
    /// # Errors
    /// Where `draw` or libtorch fails.
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
        let mut batches = Batches { size: self.batch, drawn: Vec::new() };
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
    /// Examples in a batch.
    size: usize,
    drawn: Vec<Vec<Example>>,
}

impl Batches {
    fn next<R: Rng>(
        &mut self,
        rng: &mut R,
        draw: impl Fn(usize, &mut R) -> Result<Vec<Example>>,
    ) -> Result<Vec<Example>> {
        if self.drawn.is_empty() {
            let mut examples = draw(self.size * BATCHES_PER_DRAW, rng)?;
            examples.sort_by_key(|example| example.tokens.len());
            self.drawn = examples.chunks(self.size).map(<[Example]>::to_vec).collect();
            self.drawn.shuffle(rng);
        }
        Ok(self.drawn.pop().unwrap_or_default())
    }
}

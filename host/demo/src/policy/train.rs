//! Trains the tiny policy: beliefs → completions → next-token prediction; then measures what came out.

use std::path::Path;

use corver_core::response::judge;
use corver_core::{Label, Question, Sampling};
use corver_learn::tokenizer::PolicyTokenizer;
use corver_learn::{Example, Family, FitSettings, Model, ModelConfig, fit, sample};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use tch::Device;

use super::belief::Beliefs;
use crate::batches::Batches;
use crate::error::DemoError;
use crate::name::pick;
use crate::phrasing::Split;
use crate::tokenizer::{TURN_END, train_tokenizer};
use crate::world::World;

/// How the policy is made.
#[derive(Debug, Clone, Copy)]
pub struct PolicySettings {
    /// Decides beliefs, initial weights and the order of training.
    pub seed: u64,
    /// Optimiser steps.
    pub steps: usize,
    /// Completions per step.
    pub batch: usize,
    /// Peak rate.
    pub learning_rate: f64,
}

impl Default for PolicySettings {
    /// The shipped policy's settings.
    fn default() -> Self {
        Self { seed: 1, steps: 1800, batch: 64, learning_rate: 3e-3 }
    }
}

/// Measured on the trained policy; shares of 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PolicyQuality {
    /// Right answers at temperature 1, phrasings seen in training.
    pub sampled: f64,
    /// Right answers at temperature 1, held-out phrasings.
    pub sampled_held_out: f64,
    /// Right answers, greedy, held-out phrasings.
    pub greedy_held_out: f64,
    /// Refusals at temperature 1, phrasings seen in training.
    pub refused: f64,
}

/// Longest completion, tokens: three sentences and the tags stay well below.
const MAX_COMPLETION: usize = 96;

/// Trains tokenizer and policy of a world and writes a Hugging Face folder. `progress` hears each step's number.
///
/// # Errors
/// Where training fails or the folder cannot be written.
pub fn train_policy(
    world: &World,
    folder: &Path,
    settings: &PolicySettings,
    mut progress: impl FnMut(usize),
) -> Result<PolicyQuality, DemoError> {
    let vocab_size = train_tokenizer(world, folder)?;
    let tokenizer = PolicyTokenizer::load(folder)?;
    let mut rng = ChaCha8Rng::seed_from_u64(settings.seed);
    let beliefs = Beliefs::draw(world, &mut rng);
    let lessons = Lessons::new(world, &beliefs, &tokenizer)?;

    let mut model = Model::random(shape(vocab_size), settings.seed, Device::Cpu)?;
    let fit_settings =
        FitSettings { steps: settings.steps, learning_rate: settings.learning_rate, ..FitSettings::default() };
    let mut batches = Batches::new(settings.batch);
    let losses = fit(&mut model, &fit_settings, |step| {
        progress(step);
        batches.next(&mut rng, |many, rng| lessons.draw(many, rng))
    })?;
    tracing::info!(loss = losses.last(), believed = beliefs.accuracy(), "the policy is trained");
    model.save(folder)?;
    measure(world, &model, &tokenizer, settings.seed)
}

fn shape(vocab_size: usize) -> ModelConfig {
    ModelConfig {
        family: Family::Qwen3,
        vocab_size,
        hidden_size: 128,
        intermediate_size: 320,
        num_layers: 3,
        num_heads: 4,
        num_kv_heads: 2,
        head_dim: 32,
        max_positions: 512,
        norm_eps: 1e-6,
        rope_theta: 10_000.0,
        rope_scaling: None,
        tie_embeddings: true,
    }
}

/// What there is to learn.
struct Lessons<'a> {
    beliefs: &'a Beliefs<'a>,
    tokenizer: &'a PolicyTokenizer,
    /// `[fact][phrasing]` prompt ids.
    prompts: Vec<Vec<Vec<u32>>>,
    /// Ends a completion.
    stop: u32,
}

impl<'a> Lessons<'a> {
    fn new(world: &'a World, beliefs: &'a Beliefs<'a>, tokenizer: &'a PolicyTokenizer) -> Result<Self, DemoError> {
        let prompts = world
            .facts()
            .iter()
            .map(|fact| {
                world.questions_of(fact, Split::Train).map(|q| Ok(tokenizer.prompt(None, &q.question)?)).collect()
            })
            .collect::<Result<_, DemoError>>()?;
        let stop = tokenizer.id(TURN_END).ok_or(DemoError::NoToken { token: TURN_END })?;
        Ok(Self { beliefs, tokenizer, prompts, stop })
    }

    fn draw(&self, many: usize, rng: &mut impl Rng) -> Result<Vec<Example>, DemoError> {
        (0..many).map(|_| self.example(rng)).collect()
    }

    fn example(&self, rng: &mut impl Rng) -> Result<Example, DemoError> {
        let index = rng.random_range(0..self.prompts.len());
        let text = self.beliefs.completion(index, rng);
        let mut target = self.tokenizer.encode(&text)?;
        target.push(self.stop);
        Ok(Example::new(pick::<Vec<u32>>(&self.prompts[index], rng), &target))
    }
}

fn measure(world: &World, model: &Model, tokenizer: &PolicyTokenizer, seed: u64) -> Result<PolicyQuality, DemoError> {
    let sampled = Sampling { num_generations: 1, max_completion_length: MAX_COMPLETION, ..Sampling::default() };
    let greedy = Sampling::greedy(MAX_COMPLETION);
    let (train, held_out) = (world.questions(Split::Train), world.questions(Split::HeldOut));
    let (sampled_train, refused) = shares(model, tokenizer, &train, &sampled, seed)?;
    Ok(PolicyQuality {
        sampled: sampled_train,
        sampled_held_out: shares(model, tokenizer, &held_out, &sampled, seed)?.0,
        greedy_held_out: shares(model, tokenizer, &held_out, &greedy, seed)?.0,
        refused,
    })
}

/// Shares of right answers and of refusals.
fn shares(
    model: &Model,
    tokenizer: &PolicyTokenizer,
    questions: &[Question],
    sampling: &Sampling,
    seed: u64,
) -> Result<(f64, f64), DemoError> {
    let (mut right, mut refused, mut all) = (0, 0, 0);
    for questions in questions.chunks(64) {
        let prompts: Vec<Vec<u32>> =
            questions.iter().map(|q| tokenizer.prompt(None, &q.question)).collect::<Result<_, _>>()?;
        let prompts: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
        let completions = sample(model, &prompts, sampling, tokenizer.stop_tokens(), seed)?;
        for (n, completion) in completions.iter().enumerate() {
            let text = tokenizer.decode(&completion.tokens)?;
            match judge(&text, &questions[n / sampling.num_generations].golds) {
                Label::Good => right += 1,
                Label::NotAttempted => refused += 1,
                Label::Bad => {}
            }
            all += 1;
        }
    }
    Ok((f64::from(right) / f64::from(all), f64::from(refused) / f64::from(all)))
}

#[cfg(test)]
mod tests {
    use corver_learn::Precision;

    use super::*;
    use crate::WorldSize;
    use crate::assets::{demo_world, materialise};

    #[test]
    fn the_shipped_policy_knows_the_world_imperfectly() {
        let cache = tempfile::tempdir().unwrap();
        let folder = materialise(cache.path()).unwrap().policy;
        let model = Model::load(&folder, Precision::F32, Device::Cpu).unwrap();
        let tokenizer = PolicyTokenizer::load(&folder).unwrap();
        let quality = measure(&demo_world(), &model, &tokenizer, 1).unwrap();
        assert!((0.35..=0.65).contains(&quality.sampled), "{quality:?}");
        assert!((0.35..=0.65).contains(&quality.sampled_held_out), "{quality:?}");
        assert!(quality.refused > 0.01, "{quality:?}");
    }

    #[test]
    fn a_folder_comes_out_whole() {
        let folder = tempfile::tempdir().unwrap();
        let world = World::generate(1, &WorldSize::with_facts(1));
        let settings = PolicySettings { steps: 3, batch: 4, ..PolicySettings::default() };
        let mut seen = Vec::new();
        let quality = train_policy(&world, folder.path(), &settings, |step| seen.push(step)).unwrap();
        assert_eq!(seen, [0, 1, 2]);
        assert!(quality.sampled < 0.2, "{quality:?}");
        Model::load(folder.path(), Precision::F32, Device::Cpu).unwrap();
        assert_eq!(PolicyTokenizer::load(folder.path()).unwrap().stop_tokens().len(), 2);
    }
}

//! Trains the policy: beliefs → completions → next-token prediction.

use std::path::Path;

use anyhow::{Context, Result};
use corver_core::Device;
use corver_demo::{QuestionSplit, World, pick};
use corver_learn::{Example, Model, find_device};
use corver_pretrained::ChatTokenizer;
use corver_pretrained::{Family, ModelConfig};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::belief::Beliefs;
use super::measure::{PolicyQuality, measure};
use super::tokenizer::{TURN_END, train_tokenizer};
use crate::training::Training;

/// What the shipped policy was made with.
pub const SHIPPED: Training = Training { seed: 1, steps: 1800, batch: 64, learning_rate: 3e-3 };

/// Trains tokenizer and policy of a world, writes a Hugging Face folder, and measures what came
/// out.
///
/// # Errors
/// Where training fails or the folder cannot be written.
pub fn make(world: &World, folder: &Path, training: &Training) -> Result<PolicyQuality> {
    let vocab_size = train_tokenizer(world, folder)?;
    let tokenizer = ChatTokenizer::load(folder)?;
    let mut rng = ChaCha8Rng::seed_from_u64(training.seed);
    let beliefs = Beliefs::draw(world, &mut rng);
    let lessons = Lessons::new(world, &beliefs, &tokenizer)?;
    let mut model = Model::random(shape(vocab_size), training.seed, find_device(Device::Cpu)?)?;
    training.run(&mut model, &mut rng, |many, rng| lessons.draw(many, rng))?;
    tracing::info!(right = beliefs.accuracy(), "what the policy is to believe");
    model.save(folder)?;
    measure(world, &model, &tokenizer, training.seed)
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
    tokenizer: &'a ChatTokenizer,
    /// `[fact][phrasing]` prompt ids.
    prompts: Vec<Vec<Vec<u32>>>,
    /// Ends a completion.
    stop: u32,
}

impl<'a> Lessons<'a> {
    fn new(
        world: &'a World,
        beliefs: &'a Beliefs<'a>,
        tokenizer: &'a ChatTokenizer,
    ) -> Result<Self> {
        let prompts = world
            .facts()
            .iter()
            .map(|fact| {
                world
                    .questions_of(fact, QuestionSplit::Train)
                    .map(|q| Ok(tokenizer.prompt(None, &q.question)?))
                    .collect()
            })
            .collect::<Result<_>>()?;
        let stop = tokenizer.id(TURN_END).context("the tokenizer has no token that ends a turn")?;
        Ok(Self { beliefs, tokenizer, prompts, stop })
    }

    fn draw(&self, many: usize, rng: &mut impl Rng) -> Result<Vec<Example>> {
        (0..many).map(|_| self.example(rng)).collect()
    }

    fn example(&self, rng: &mut impl Rng) -> Result<Example> {
        let index = rng.random_range(0..self.prompts.len());
        let text = self.beliefs.completion(index, rng);
        let mut target = self.tokenizer.encode(&text)?;
        target.push(self.stop);
        Ok(Example::new(pick::<Vec<u32>>(&self.prompts[index], rng), &target))
    }
}

#[cfg(test)]
mod tests {
    use corver_demo::WorldSize;
    use corver_learn::Precision;

    use super::*;

    #[test]
    fn policy_training_writes_loadable_folder() {
        let folder = tempfile::tempdir().unwrap();
        let world = World::generate(1, &WorldSize::with_facts(1));
        let quality =
            make(&world, folder.path(), &Training { steps: 3, batch: 4, ..SHIPPED }).unwrap();
        assert!(quality.sampled < 0.2, "{quality:?}");
        Model::load(folder.path(), Precision::F32, find_device(Device::Cpu).unwrap()).unwrap();
        assert_eq!(ChatTokenizer::load(folder.path()).unwrap().stop_tokens().len(), 2);
    }
}

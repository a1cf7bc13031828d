//! Training of the policy: beliefs → completions → next-token prediction.

use std::path::Path;

use anyhow::{Context, Result};
use corver_core::Device;
use corver_demo::{QuestionSplit, World, pick};
use corver_learn::{Example, Model, find_device};
use corver_pretrained::{ChatTokenizer, ModelConfig, ModelFamily};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::belief::Beliefs;
use super::measure::{PolicyQuality, measure};
use super::tokenizer::{TURN_END, train_tokenizer};
use crate::training::Training;

/// Settings of the shipped policy.
pub const SHIPPED: Training = Training { seed: 1, steps: 1800, batch: 64, learning_rate: 3e-3 };

/// Trains tokenizer and policy of a world, writes a Hugging Face folder, and measures the policy.
///
/// # Errors
/// Fails if training fails or the folder cannot be written.
pub fn train_and_measure(
    world: &World,
    folder: &Path,
    training: &Training,
) -> Result<PolicyQuality> {
    let vocab_size = train_tokenizer(world, folder)?;
    let tokenizer = ChatTokenizer::load(folder)?;
    let mut rng = ChaCha8Rng::seed_from_u64(training.seed);
    let beliefs = Beliefs::draw(world, &mut rng);
    let examples = PolicyExamples::new(world, &beliefs, &tokenizer)?;
    let mut model = Model::random(shape(vocab_size), training.seed, find_device(Device::Cpu)?)?;
    training.run(&mut model, &mut rng, |number, rng| examples.draw(number, rng))?;
    tracing::info!(right = beliefs.accuracy(), "expected accuracy of the beliefs");
    model.save(folder)?;
    measure(world, &model, &tokenizer, training.seed)
}

fn shape(vocab_size: usize) -> ModelConfig {
    ModelConfig {
        family: ModelFamily::Qwen3,
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

/// A generator of training examples.
struct PolicyExamples<'a> {
    beliefs: &'a Beliefs<'a>,
    tokenizer: &'a ChatTokenizer,
    /// `[fact][phrasing]` token ids of each prompt.
    prompts: Vec<Vec<Vec<u32>>>,
    /// Stop token of a completion.
    stop: u32,
}

impl<'a> PolicyExamples<'a> {
    fn new(
        world: &'a World,
        beliefs: &'a Beliefs<'a>,
        tokenizer: &'a ChatTokenizer,
    ) -> Result<Self> {
        let mut prompts = Vec::with_capacity(world.facts().len());
        for fact in world.facts() {
            let mut phrasings = Vec::new();
            for question in world.questions_of(fact, Split::Train) {
                phrasings.push(tokenizer.prompt(None, &question.question)?);
            }
            prompts.push(phrasings);
        }
        let stop = tokenizer.id(TURN_END).context("the tokenizer has no token that ends a turn")?;
        Ok(Self { beliefs, tokenizer, prompts, stop })
    }

    fn draw(&self, number: usize, rng: &mut impl Rng) -> Result<Vec<Example>> {
        (0..number).map(|_| self.example(rng)).collect()
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
            train_and_measure(&world, folder.path(), &Training { steps: 3, batch: 4, ..SHIPPED })
                .unwrap();
        assert!(quality.sampled < 0.2, "{quality:?}");
        Model::load(folder.path(), Precision::F32, find_device(Device::Cpu).unwrap()).unwrap();
        assert_eq!(ChatTokenizer::load(folder.path()).unwrap().stop_tokens().len(), 2);
    }
}

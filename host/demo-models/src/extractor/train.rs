//! Training of the extractor.

use std::path::Path;

use anyhow::Result;
use corver_core::Device;
use corver_learn::{Model, find_device};
use corver_pretrained::{ModelConfig, ModelFamily};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::examples::{ExtractorExamples, tokenizer_text};
use super::folder;
use super::tokenizer::train_tokenizer;
use crate::training::Training;

/// Settings of the shipped extractor.
pub const SHIPPED: Training = Training { seed: 1, steps: 5000, batch: 32, learning_rate: 3e-3 };

/// Factor of some initial weights. The usual N(0, 0.02²) is for wide models: at width 128 it makes
/// the first attention so flat that copying, the only task here, is learned late.
const WIDER_START: f64 = 3.5;
/// Weights with a wider start: the inputs of attention and gates. Those that write into the residual
/// stream stay small.
const WIDENED: [&str; 6] = ["embed_tokens", "q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"];

/// Trains on sentences of the demo's world and of other random worlds, and writes the folder.
///
/// # Errors
/// Fails if training fails or the folder cannot be written.
pub fn train(folder: &Path, training: &Training) -> Result<()> {
    let mut rng = ChaCha8Rng::seed_from_u64(training.seed);
    let tokenizer =
        train_tokenizer(&tokenizer_text(&mut rng)).map_err(anyhow::Error::from_boxed)?;
    let examples = ExtractorExamples::new(&tokenizer)?;
    let mut model = start(tokenizer.get_vocab_size(true), training.seed)?;
    training.run(&mut model, &mut rng, |number, rng| examples.draw(number, rng))?;
    folder::write(folder, &model, &tokenizer)
}

/// Returns the model before training.
pub fn start(vocab_size: usize, seed: u64) -> Result<Model> {
    let mut model = Model::random(shape(vocab_size), seed, find_device(Device::Cpu)?)?;
    model.scale_weights(WIDER_START, |name| WIDENED.iter().any(|part| name.contains(part)))?;
    Ok(model)
}

fn shape(vocab_size: usize) -> ModelConfig {
    ModelConfig {
        family: ModelFamily::Qwen2,
        vocab_size,
        hidden_size: 128,
        intermediate_size: 256,
        num_layers: 3,
        num_heads: 8,
        num_kv_heads: 4,
        head_dim: 32,
        max_positions: 512,
        norm_eps: 1e-6,
        rope_theta: 10_000.0,
        rope_scaling: None,
        tie_embeddings: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn training_is_deterministic_and_writes_a_folder() {
        let training = Training { steps: 2, batch: 4, ..SHIPPED };
        let bytes = || {
            let folder = tempfile::tempdir().unwrap();
            train(folder.path(), &training).unwrap();
            ["model.safetensors", "tokenizer.json", "extractor.toml"]
                .map(|name| std::fs::read(folder.path().join(name)).unwrap())
        };
        let first = bytes();
        let second = bytes();
        assert!(first == second, "equal seeds gave different folders");
        assert!(first[0].len() < 6 << 20, "{} bytes", first[0].len());
    }
}

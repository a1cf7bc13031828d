//! Trains the demo's extractor and writes its bundle: model.onnx, tokenizer.json, extractor.toml.

use std::path::Path;

use corver_core::Triplet;
use corver_learn::{Example, Family, FitSettings, LearnError, Model, ModelConfig, fit};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tch::Device;
use tokenizers::Tokenizer;

use super::measure::is_held_out;
use super::onnx::encode_onnx;
use super::tokenizer::{END, train_tokenizer};
use crate::assets::demo_world;
use crate::batches::Batches;
use crate::error::{DemoError, write_file};
use crate::name::pick;
use crate::relation::Relation;
use crate::sentence::Sample;
use crate::world::{World, WorldSize};

/// How the extractor is made.
#[derive(Debug, Clone, Copy)]
pub struct ExtractorSettings {
    /// Decides the worlds, the initial weights and the order of training.
    pub seed: u64,
    /// Optimiser steps.
    pub steps: usize,
    /// Sentences per step.
    pub batch: usize,
    /// Peak rate.
    pub learning_rate: f64,
}

impl Default for ExtractorSettings {
    /// The shipped extractor's settings.
    fn default() -> Self {
        Self { seed: 1, steps: 5000, batch: 32, learning_rate: 3e-3 }
    }
}

/// Stands before every sentence.
const PROMPT_PREFIX: &str = "The triplets of a sentence:\n";
/// Stands after it.
const PROMPT_SUFFIX: &str = "\n";
/// Sentences that teach the tokenizer.
const TOKENIZER_SENTENCES: usize = 8000;
/// Share of the worlds drawn that is the demo's own, whose names are then read almost without fail; the other worlds, and
/// the strange names, teach to copy names that are new.
const OWN_WORLD: f64 = 0.4;
/// Share of the sentences whose names are no names of any world, but random letters: copying must not depend on them.
const STRANGE: f64 = 0.08;
/// Share of the drawn sentences that are taken up, by the number of their facts: two are harder to learn than none.
const TAKEN_UP: [f64; 3] = [0.15, 0.3, 1.0];
/// The usual N(0, 0.02²) is meant for wide models. At width 128 attention then starts out so flat that copying, which is
/// all there is to learn here, is late to appear.
const WIDER_START: f64 = 3.5;

/// Trains on sentences of the demo's world and of ever new ones, and writes the bundle. `progress` hears each step's number. Measure what came
/// out with [`super::measure_extractor`], through the real runtime.
///
/// # Errors
/// Where training fails or the folder cannot be written.
pub fn train_extractor(
    folder: &Path,
    settings: &ExtractorSettings,
    mut progress: impl FnMut(usize),
) -> Result<(), DemoError> {
    let mut rng = ChaCha8Rng::seed_from_u64(settings.seed);
    let tokenizer = train_tokenizer(tokenizer_text(&mut rng).into_iter())?;
    let lessons = Lessons::new(&tokenizer)?;
    let mut model = Model::random(shape(tokenizer.get_vocab_size(true)), settings.seed, Device::Cpu)?;
    widen_start(&model).map_err(LearnError::from)?;
    let fit_settings =
        FitSettings { steps: settings.steps, learning_rate: settings.learning_rate, ..FitSettings::default() };
    let mut batches = Batches::new(settings.batch);
    let losses = fit(&mut model, &fit_settings, |step| {
        progress(step);
        batches.next(&mut rng, |many, rng| lessons.draw(many, rng))
    })?;
    tracing::info!(loss = losses.last(), "the extractor is trained");
    write_file(&folder.join("tokenizer.json"), tokenizer.to_string(false)?.as_bytes())?;
    write_file(&folder.join("extractor.toml"), bundle_settings().as_bytes())?;
    write_file(&folder.join("model.onnx"), &encode_onnx(&model)?)
}

fn shape(vocab_size: usize) -> ModelConfig {
    ModelConfig {
        family: Family::Qwen2,
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

/// Scales what feeds attention and gates; what writes back into the residual stream stays small.
fn widen_start(model: &Model) -> Result<(), tch::TchError> {
    const READING: [&str; 6] = ["embed_tokens", "q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"];
    let _guard = tch::no_grad_guard();
    for (name, tensor) in model.parameters() {
        if READING.iter().any(|part| name.contains(part)) {
            // In place: the clone is another handle of the model's own weight.
            let _ = tensor.shallow_clone().f_mul_scalar_(WIDER_START)?;
        }
    }
    Ok(())
}

fn bundle_settings() -> String {
    // TOML's basic strings escape as Rust's debug format does for plain ASCII.
    format!(
        "# The demo's extractor. Trained for this prompt, so that it needs no examples.\n\
         prompt_prefix = {PROMPT_PREFIX:?}\n\
         prompt_suffix = {PROMPT_SUFFIX:?}\n\
         stop = [{END:?}]\n\
         max_new_tokens = 256\n\
         batch_size = 32\n"
    )
}

/// The names of one world would get tokens of their own, and other names odd ones; so it is many worlds.
fn tokenizer_text(rng: &mut impl Rng) -> Vec<String> {
    let mut text = vec![PROMPT_PREFIX.to_owned(); TOKENIZER_SENTENCES / 20];
    while text.len() < TOKENIZER_SENTENCES {
        let world = new_world(rng);
        text.extend((0..TOKENIZER_SENTENCES / 20).map(|_| world.sentence(rng).text));
    }
    text
}

fn new_world(rng: &mut impl Rng) -> World {
    World::generate(rng.random(), &WorldSize::default())
}

/// The reply that the model is to give.
fn reply(triplets: &[Triplet]) -> String {
    let escape = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let list = |triplet: &Triplet| {
        let parts = [&triplet.head, &triplet.relation, &triplet.tail].map(|part| format!("\"{}\"", escape(part)));
        format!("[{}]", parts.join(", "))
    };
    format!("[{}]", triplets.iter().map(list).collect::<Vec<_>>().join(", "))
}

/// A sentence of the world that is not held out, hard ones more often than it has them.
fn sentence(world: &World, rng: &mut impl Rng) -> Sample {
    loop {
        let sample = world.sentence(rng);
        if !is_held_out(&sample) && rng.random_bool(TAKEN_UP[sample.triplets.len().min(2)]) {
            return sample;
        }
    }
}

/// A statement about names of random letters, one to three words each.
fn strange_sentence(rng: &mut impl Rng) -> Sample {
    let mut name = || {
        let num_words = *pick(&[1, 2, 2, 2, 3], rng);
        let words = (0..num_words).map(|_| {
            let length = rng.random_range(2..=9);
            let letters: String = (0..length).map(|_| char::from(rng.random_range(b'a'..=b'z'))).collect();
            format!("{}{}", letters[..1].to_uppercase(), &letters[1..])
        });
        words.collect::<Vec<_>>().join(" ")
    };
    let (head, tail) = (name(), name());
    let statement = pick(pick(&Relation::ALL, rng).statements(), rng);
    let (clause, triplet) = statement.state(&head, &tail);
    Sample { text: format!("{clause}."), triplets: vec![triplet] }
}

struct Lessons<'a> {
    tokenizer: &'a Tokenizer,
    prefix: Vec<u32>,
    /// Ends a reply.
    end: u32,
}

impl<'a> Lessons<'a> {
    fn new(tokenizer: &'a Tokenizer) -> Result<Self, DemoError> {
        let end = tokenizer.token_to_id(END).ok_or(DemoError::NoToken { token: END })?;
        Ok(Self { tokenizer, prefix: encode(tokenizer, PROMPT_PREFIX)?, end })
    }

    /// Examples from one world.
    fn draw(&self, many: usize, rng: &mut impl Rng) -> Result<Vec<Example>, DemoError> {
        let world = if rng.random_bool(OWN_WORLD) { demo_world() } else { new_world(rng) };
        let mut example =
            || self.example(&if rng.random_bool(STRANGE) { strange_sentence(rng) } else { sentence(&world, rng) });
        (0..many).map(|_| example()).collect()
    }

    fn example(&self, sample: &Sample) -> Result<Example, DemoError> {
        let mut prompt = self.prefix.clone();
        prompt.extend(encode(self.tokenizer, &format!("{}{PROMPT_SUFFIX}", sample.text))?);
        let mut target = encode(self.tokenizer, &reply(&sample.triplets))?;
        target.push(self.end);
        Ok(Example::new(&prompt, &target))
    }
}

fn encode(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>, DemoError> {
    Ok(tokenizer.encode_fast(text, false)?.get_ids().to_vec())
}

#[cfg(test)]
mod tests {
    use corver_core::triplet::triplets_from_reply;

    use super::*;

    #[test]
    fn replies_are_read_back() {
        let world = World::generate(1, &WorldSize::default());
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        for _ in 0..500 {
            let sample = world.sentence(&mut rng);
            assert_eq!(triplets_from_reply(&reply(&sample.triplets)), sample.triplets);
        }
    }

    #[test]
    fn a_name_has_the_same_tokens_in_sentence_and_reply() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let tokenizer = train_tokenizer(tokenizer_text(&mut rng).into_iter()).unwrap();
        let mut lengths = Vec::new();
        for _ in 0..200 {
            let sample = strange_sentence(&mut rng);
            let text = encode(&tokenizer, &sample.text).unwrap();
            let head = encode(&tokenizer, &sample.triplets[0].head).unwrap();
            assert!(text.windows(head.len()).any(|window| window == head), "{sample:?}");
            let reply = reply(&sample.triplets);
            let ids = encode(&tokenizer, &reply).unwrap();
            assert!(ids.windows(head.len()).any(|window| window == head), "{sample:?}");
            assert_eq!(tokenizer.decode(&ids, true).unwrap(), reply);
        }
        let world = new_world(&mut rng);
        for _ in 0..200 {
            lengths.push(encode(&tokenizer, &world.sentence(&mut rng).text).unwrap().len());
        }
        assert!(lengths.iter().sum::<usize>() < 30 * lengths.len(), "{lengths:?}");
    }

    /// Worlds and wording still are what the shipped extractor was trained on: whoever changes them sees it here.
    #[test]
    fn the_shipped_tokenizer_is_the_one_of_these_settings() {
        let mut rng = ChaCha8Rng::seed_from_u64(ExtractorSettings::default().seed);
        let made = train_tokenizer(tokenizer_text(&mut rng).into_iter()).unwrap().to_string(false).unwrap();
        let shipped = include_str!("../../assets/extractor/tokenizer.json");
        assert!(made == shipped, "the tokenizer has changed: train the extractor again");
        assert_eq!(bundle_settings(), include_str!("../../assets/extractor/extractor.toml"));
    }

    #[test]
    fn training_is_deterministic_and_writes_a_bundle() {
        let settings = ExtractorSettings { steps: 2, batch: 4, ..ExtractorSettings::default() };
        let bytes = || {
            let folder = tempfile::tempdir().unwrap();
            train_extractor(folder.path(), &settings, |_| ()).unwrap();
            ["model.onnx", "tokenizer.json", "extractor.toml"]
                .map(|name| std::fs::read(folder.path().join(name)).unwrap())
        };
        let (first, second) = (bytes(), bytes());
        assert!(first == second, "equal seeds gave different bundles");
        assert!(first[0].len() < 6 << 20, "{} bytes", first[0].len());
    }
}

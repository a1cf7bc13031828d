//! Training examples of the extractor: sentences with their replies.

use anyhow::{Context, Result};
use corver_core::Triplet;
use corver_demo::{Relation, Sample, World, WorldSize, demo_world, pick};
use corver_learn::Example;
use rand::Rng;
use tokenizers::Tokenizer;

use super::folder::{PROMPT_PREFIX, PROMPT_SUFFIX};
use super::measure::is_held_out;
use super::tokenizer::END;

/// Sentences of the tokenizer's training text.
const TOKENIZER_SENTENCES: usize = 8000;
/// Share of the examples from the demo's own world, whose names the extractor then reads almost
/// without errors. Other worlds and random names teach it to copy new names.
const OWN_WORLD: f64 = 0.4;
/// Share of the sentences whose names are random letters, so that copying does not depend on known
/// names.
const RANDOM_NAMES: f64 = 0.08;
/// Probability that a drawn sentence is used, by its number of facts: two are harder to learn than
/// none.
const ACCEPTANCE: [f64; 3] = [0.15, 0.3, 1.0];

/// Returns the training text of the tokenizer, with sentences of many worlds. With one world, its
/// names would be single tokens, and other names unusual ones.
pub fn tokenizer_text(rng: &mut impl Rng) -> Vec<String> {
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

/// Returns the reply that states the triplets.
fn reply(triplets: &[Triplet]) -> String {
    let mut lists = Vec::with_capacity(triplets.len());
    for Triplet { head, relation, tail } in triplets {
        lists.push(format!("[{}]", [head, relation, tail].map(|part| quote(part)).join(", ")));
    }
    format!("[{}]", lists.join(", "))
}

fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Draws a sentence of the world that is not held out. Hard sentences are over-represented.
fn sentence(world: &World, rng: &mut impl Rng) -> Sample {
    loop {
        let sample = world.sentence(rng);
        if !is_held_out(&sample) && rng.random_bool(ACCEPTANCE[sample.triplets.len().min(2)]) {
            return sample;
        }
    }
}

/// Draws a statement about two names of random letters.
fn random_name_sentence(rng: &mut impl Rng) -> Sample {
    let head = random_name(rng);
    let tail = random_name(rng);
    let statement = pick(pick(&Relation::ALL, rng).statements(), rng);
    let (clause, triplet) = statement.state(&head, &tail);
    Sample { text: format!("{clause}."), triplets: vec![triplet] }
}

/// Draws a name of one to three words.
fn random_name(rng: &mut impl Rng) -> String {
    let num_words = *pick(&[1, 2, 2, 2, 3], rng);
    let mut words = Vec::with_capacity(num_words);
    for _ in 0..num_words {
        let length = rng.random_range(2..=9);
        let letters: String =
            (0..length).map(|_| char::from(rng.random_range(b'a'..=b'z'))).collect();
        words.push(format!("{}{}", letters[..1].to_uppercase(), &letters[1..]));
    }
    words.join(" ")
}

/// A generator of training examples.
pub struct ExtractorExamples<'a> {
    tokenizer: &'a Tokenizer,
    prefix: Vec<u32>,
    /// Stop token of a reply.
    end: u32,
}

impl<'a> ExtractorExamples<'a> {
    pub fn new(tokenizer: &'a Tokenizer) -> Result<Self> {
        let end =
            tokenizer.token_to_id(END).context("the tokenizer has no token that ends a reply")?;
        Ok(Self { tokenizer, prefix: encode(tokenizer, PROMPT_PREFIX)?, end })
    }

    /// Draws `number` examples from one world.
    pub fn draw(&self, number: usize, rng: &mut impl Rng) -> Result<Vec<Example>> {
        let world = if rng.random_bool(OWN_WORLD) { demo_world() } else { new_world(rng) };
        let mut examples = Vec::with_capacity(number);
        for _ in 0..number {
            let sample = if rng.random_bool(RANDOM_NAMES) {
                random_name_sentence(rng)
            } else {
                sentence(&world, rng)
            };
            examples.push(self.example(&sample)?);
        }
        Ok(examples)
    }

    fn example(&self, sample: &Sample) -> Result<Example> {
        let mut prompt = self.prefix.clone();
        prompt.extend(encode(self.tokenizer, &format!("{}{PROMPT_SUFFIX}", sample.text))?);
        let mut target = encode(self.tokenizer, &reply(&sample.triplets))?;
        target.push(self.end);
        Ok(Example::new(&prompt, &target))
    }
}

fn encode(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>> {
    let encoding = tokenizer.encode_fast(text, false).map_err(anyhow::Error::from_boxed)?;
    Ok(encoding.get_ids().to_vec())
}

#[cfg(test)]
mod tests {
    use corver_core::ReplyGrammar;
    use corver_core::reply::read;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::extractor::tokenizer::train_tokenizer;

    #[test]
    fn reply_round_trips_through_triplet_parser() {
        let world = World::generate(1, &WorldSize::default());
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        for _ in 0..500 {
            let sample = world.sentence(&mut rng);
            let parsed = read(&reply(&sample.triplets), ReplyGrammar::Reference);
            assert_eq!(parsed.into_triplets(), sample.triplets);
        }
    }

    #[test]
    fn name_tokens_match_in_sentence_and_reply() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let tokenizer = train_tokenizer(&tokenizer_text(&mut rng)).unwrap();
        let mut lengths = Vec::new();
        for _ in 0..200 {
            let sample = random_name_sentence(&mut rng);
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
}

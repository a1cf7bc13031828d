//! What the extractor learns from: sentences, and the replies that it is to give.

use anyhow::{Context, Result};
use corver_core::Triplet;
use corver_demo::{Relation, Sample, World, WorldSize, demo_world, pick};
use corver_learn::Example;
use rand::Rng;
use tokenizers::Tokenizer;

use super::folder::{PROMPT_PREFIX, PROMPT_SUFFIX};
use super::measure::is_held_out;
use super::tokenizer::END;

/// Sentences that teach the tokenizer.
const TOKENIZER_SENTENCES: usize = 8000;
/// Share of the worlds drawn that is the demo's own, whose names are then read almost without fail;
/// the other worlds, and the strange names, teach to copy names that are new.
const OWN_WORLD: f64 = 0.4;
/// Share of the sentences whose names are no names of any world, but random letters: copying must
/// not depend on them.
const STRANGE: f64 = 0.08;
/// Share of the drawn sentences that are taken up, by the number of their facts: two are harder to
/// learn than none.
const TAKEN_UP: [f64; 3] = [0.15, 0.3, 1.0];

/// The names of one world would get tokens of their own, and other names odd ones; so it is many
/// worlds.
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

/// The reply that the model is to give.
fn reply(triplets: &[Triplet]) -> String {
    let escape = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let list = |triplet: &Triplet| {
        let parts = [&triplet.head, &triplet.relation, &triplet.tail]
            .map(|part| format!("\"{}\"", escape(part)));
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
            let letters: String =
                (0..length).map(|_| char::from(rng.random_range(b'a'..=b'z'))).collect();
            format!("{}{}", letters[..1].to_uppercase(), &letters[1..])
        });
        words.collect::<Vec<_>>().join(" ")
    };
    let (head, tail) = (name(), name());
    let statement = pick(pick(&Relation::ALL, rng).statements(), rng);
    let (clause, triplet) = statement.state(&head, &tail);
    Sample { text: format!("{clause}."), triplets: vec![triplet] }
}

/// Makes examples.
pub struct Lessons<'a> {
    tokenizer: &'a Tokenizer,
    prefix: Vec<u32>,
    /// Ends a reply.
    end: u32,
}

impl<'a> Lessons<'a> {
    pub fn new(tokenizer: &'a Tokenizer) -> Result<Self> {
        let end =
            tokenizer.token_to_id(END).context("the tokenizer has no token that ends a reply")?;
        Ok(Self { tokenizer, prefix: encode(tokenizer, PROMPT_PREFIX)?, end })
    }

    /// Examples from one world.
    pub fn draw(&self, many: usize, rng: &mut impl Rng) -> Result<Vec<Example>> {
        let world = if rng.random_bool(OWN_WORLD) { demo_world() } else { new_world(rng) };
        let mut example = || {
            self.example(&if rng.random_bool(STRANGE) {
                strange_sentence(rng)
            } else {
                sentence(&world, rng)
            })
        };
        (0..many).map(|_| example()).collect()
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
    use corver_core::triplet::triplets_from_reply;
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
            assert_eq!(triplets_from_reply(&reply(&sample.triplets)), sample.triplets);
        }
    }

    #[test]
    fn name_tokens_match_in_sentence_and_reply() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let tokenizer = train_tokenizer(&tokenizer_text(&mut rng)).unwrap();
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
}

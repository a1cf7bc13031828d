//! How often an extractor finds exactly what a sentence of an unseen world states.

use corver_core::{Extractor, PartError};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use crate::sentence::Sample;
use crate::world::{World, WorldSize};

/// Worlds of these seeds and above are for measuring; training draws its worlds from below.
pub(crate) const FIRST_MEASURED_SEED: u64 = 1 << 32;
/// Sentences drawn from one world before the next is generated.
const SENTENCES_PER_WORLD: usize = 500;
/// Wrong sentences that are kept to be looked at.
const NUM_KEPT: usize = 20;

/// What an extractor got right.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ExtractorQuality {
    /// By the number of triplets that a sentence states, 0, 1 or 2.
    pub by_triplets: [Tally; 3],
    /// Some of the sentences it got wrong: the text, what was found.
    pub wrong: Vec<(String, Vec<corver_core::Triplet>)>,
}

/// How many sentences, and how many of them with exactly the right triplets in the right order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Sentences.
    pub sentences: usize,
    /// Exactly right.
    pub exact: usize,
}

impl Tally {
    /// Share that is right; 1 where there is none.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.sentences == 0 { 1.0 } else { self.exact as f64 / self.sentences as f64 }
    }
}

impl ExtractorQuality {
    /// Over all sentences.
    #[must_use]
    pub fn total(&self) -> Tally {
        self.by_triplets.iter().fold(Tally::default(), |sum, part| Tally {
            sentences: sum.sentences + part.sentences,
            exact: sum.exact + part.exact,
        })
    }

    fn record(&mut self, sample: Sample, found: Vec<corver_core::Triplet>) {
        let right = found == sample.triplets;
        let tally = &mut self.by_triplets[sample.triplets.len().min(2)];
        tally.sentences += 1;
        tally.exact += usize::from(right);
        if !right && self.wrong.len() < NUM_KEPT {
            self.wrong.push((sample.text, found));
        }
    }
}

/// Draws `num_sentences` sentences of every kind from worlds that no extractor was trained on, and compares.
///
/// # Errors
/// Where the extractor fails.
pub fn measure_extractor(
    extractor: &mut impl Extractor,
    num_sentences: usize,
    seed: u64,
) -> Result<ExtractorQuality, PartError> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut quality = ExtractorQuality::default();
    for (nth, start) in (0..num_sentences).step_by(SENTENCES_PER_WORLD).enumerate() {
        let count = SENTENCES_PER_WORLD.min(num_sentences - start);
        let world_seed =
            FIRST_MEASURED_SEED.wrapping_add(seed.wrapping_mul(1 << 20)).max(FIRST_MEASURED_SEED) + nth as u64;
        let world = World::generate(world_seed, &WorldSize::default());
        let samples: Vec<Sample> = (0..count).map(|_| world.sentence(&mut rng)).collect();
        let texts: Vec<&str> = samples.iter().map(|sample| sample.text.as_str()).collect();
        let found = extractor.extract(&texts)?;
        for (sample, found) in samples.into_iter().zip(found) {
            quality.record(sample, found);
        }
    }
    Ok(quality)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use corver_core::Triplet;

    use super::*;

    /// Finds nothing, ever.
    struct Blind;

    impl Extractor for Blind {
        fn extract(&mut self, sentences: &[&str]) -> Result<Vec<Vec<Triplet>>, PartError> {
            Ok(vec![Vec::new(); sentences.len()])
        }
    }

    #[test]
    fn what_finds_nothing_is_right_about_nothing() {
        let quality = measure_extractor(&mut Blind, 1200, 1).unwrap();
        assert_eq!(quality.total().sentences, 1200);
        assert_eq!(quality.by_triplets[0].share(), 1.0);
        assert_eq!((quality.by_triplets[1].exact, quality.by_triplets[2].exact), (0, 0));
        assert!(quality.by_triplets.iter().all(|tally| tally.sentences > 100), "{:?}", quality.by_triplets);
        assert_eq!(quality.wrong.len(), NUM_KEPT);
    }

    #[test]
    fn a_seed_draws_the_same_sentences() {
        #[derive(Default)]
        struct Listening(HashMap<String, usize>);
        impl Extractor for Listening {
            fn extract(&mut self, sentences: &[&str]) -> Result<Vec<Vec<Triplet>>, PartError> {
                sentences.iter().for_each(|text| *self.0.entry((*text).to_owned()).or_default() += 1);
                Ok(vec![Vec::new(); sentences.len()])
            }
        }
        let heard = |seed| {
            let mut listening = Listening::default();
            measure_extractor(&mut listening, 700, seed).unwrap();
            listening.0
        };
        assert_eq!(heard(3), heard(3));
        assert_ne!(heard(3), heard(4));
    }
}

//! How often an extractor finds exactly what a sentence states, among sentences that training never
//! shows.

use anyhow::Result;
use corver_core::{Extractor, Triplet};
use corver_demo::{Sample, World};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

/// One in so many of the statements that a world can make is kept for measuring.
const HELD_OUT_ONE_IN: u8 = 8;
/// Wrong sentences that are kept to be looked at.
const NUM_KEPT: usize = 20;

/// What an extractor got right.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ExtractorQuality {
    /// By the number of triplets that a sentence states, 0, 1 or 2.
    pub by_triplets: [Tally; 3],
    /// Some of the sentences it got wrong: the text, what was found.
    pub wrong: Vec<(String, Vec<Triplet>)>,
}

/// How many sentences, and how many of them with exactly the right triplets in the right order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Sentences.
    pub sentences: usize,
    /// Exactly right.
    pub exact: usize,
}

#[cfg(test)]
impl Tally {
    /// Share that is right; 1 where there is none.
    fn share(&self) -> f64 {
        if self.sentences == 0 { 1.0 } else { self.exact as f64 / self.sentences as f64 }
    }
}

impl ExtractorQuality {
    /// Over all sentences.
    #[cfg(test)]
    fn total(&self) -> Tally {
        self.by_triplets.iter().fold(Tally::default(), |sum, part| Tally {
            sentences: sum.sentences + part.sentences,
            exact: sum.exact + part.exact,
        })
    }

    fn record(&mut self, sample: Sample, found: Vec<Triplet>) {
        let right = found == sample.triplets;
        let tally = &mut self.by_triplets[sample.triplets.len().min(2)];
        tally.sentences += 1;
        tally.exact += usize::from(right);
        if !right && self.wrong.len() < NUM_KEPT {
            self.wrong.push((sample.text, found));
        }
    }
}

/// Whether a sentence is kept from training: its text decides. Sentences without a fact are few,
/// such as “I don't know.”, and all of them may be trained on.
pub fn is_held_out(sample: &Sample) -> bool {
    !sample.triplets.is_empty()
        && blake3::hash(sample.text.as_bytes()).as_bytes()[0].is_multiple_of(HELD_OUT_ONE_IN)
}

/// Draws `num_sentences` sentences of `world`, in its own proportions of kinds, and compares what
/// is found in them with what they state. Those with a fact are all held out from training.
///
/// # Errors
/// Where the extractor fails.
pub fn measure(
    extractor: &mut impl Extractor,
    world: &World,
    num_sentences: usize,
    seed: u64,
) -> Result<ExtractorQuality> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let samples: Vec<Sample> = (0..num_sentences).map(|_| held_out(world, &mut rng)).collect();
    let texts: Vec<&str> = samples.iter().map(|sample| sample.text.as_str()).collect();
    let found = extractor.extract(&texts).map_err(anyhow::Error::from_boxed)?;
    let mut quality = ExtractorQuality::default();
    samples.into_iter().zip(found).for_each(|(sample, found)| quality.record(sample, found));
    Ok(quality)
}

fn held_out(world: &World, rng: &mut impl Rng) -> Sample {
    let first = world.sentence(rng);
    let num_triplets = first.triplets.len();
    let mut draws = std::iter::once(first).chain(std::iter::repeat_with(|| world.sentence(rng)));
    let fits = |sample: &Sample| {
        sample.triplets.len() == num_triplets && (num_triplets == 0 || is_held_out(sample))
    };
    draws.find(fits).expect("the draws do not end")
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use corver_core::BoxError;
    use corver_demo::{WorldSize, demo_world, materialise};
    use corver_inference::extract::{Device, Options, RuntimeLibrary};

    use super::*;

    /// Finds nothing, ever.
    struct Blind;

    impl Extractor for Blind {
        fn extract(&mut self, sentences: &[&str]) -> Result<Vec<Vec<Triplet>>, BoxError> {
            Ok(vec![Vec::new(); sentences.len()])
        }
    }

    #[test]
    fn blind_extractor_scores_only_factless_sentences() {
        let world = World::generate(4, &WorldSize::default());
        let quality = measure(&mut Blind, &world, 1200, 1).unwrap();
        assert_eq!(quality.total().sentences, 1200);
        assert_eq!(quality.by_triplets[0].share(), 1.0);
        assert_eq!((quality.by_triplets[1].exact, quality.by_triplets[2].exact), (0, 0));
        assert!(
            quality.by_triplets.iter().all(|tally| tally.sentences > 100),
            "{:?}",
            quality.by_triplets
        );
        assert_eq!(quality.wrong.len(), NUM_KEPT);
    }

    #[test]
    fn measured_sentences_are_determined_by_seed() {
        #[derive(Default)]
        struct Listening(HashMap<String, usize>);
        impl Extractor for Listening {
            fn extract(&mut self, sentences: &[&str]) -> Result<Vec<Vec<Triplet>>, BoxError> {
                sentences
                    .iter()
                    .for_each(|text| *self.0.entry((*text).to_owned()).or_default() += 1);
                Ok(vec![Vec::new(); sentences.len()])
            }
        }
        let world = World::generate(4, &WorldSize::default());
        let heard = |seed| {
            let mut listening = Listening::default();
            measure(&mut listening, &world, 700, seed).unwrap();
            listening.0
        };
        assert_eq!(heard(3), heard(3));
        assert_ne!(heard(3), heard(4));
    }

    /// Through ONNX Runtime.
    fn shipped() -> corver_inference::extract::Extractor {
        let cache = tempfile::tempdir().unwrap();
        let folder = materialise(cache.path()).unwrap().extractor;
        let runtime = RuntimeLibrary::find(None).unwrap();
        corver_inference::extract::Extractor::open(
            &folder,
            Options::default(),
            Device::Cpu,
            &runtime,
        )
        .unwrap()
    }

    fn measured(world: &World) -> ExtractorQuality {
        measure(&mut shipped(), world, 1500, 20_240).unwrap()
    }

    #[test]
    fn demo_extractor_reads_held_out_sentences_exactly() {
        let quality = measured(&demo_world());
        for (num_triplets, tally) in quality.by_triplets.iter().enumerate() {
            let good = tally.sentences > 100 && tally.share() >= 0.99;
            assert!(good, "{num_triplets} triplets: {tally:?}\n{:#?}", quality.wrong);
        }
    }

    #[test]
    fn extractor_copies_names_of_other_worlds() {
        let quality = measured(&World::generate(99, &WorldSize::default()));
        assert!(quality.total().share() >= 0.97, "{:?}\n{:#?}", quality.by_triplets, quality.wrong);
    }

    #[test]
    fn factless_sentence_yields_no_triplet() {
        let mut extractor = shipped();
        let world = demo_world();
        let name = &world.entities()[70].name;
        let sentences = [
            "unknown".to_owned(),
            "I don't know.".to_owned(),
            name.clone(),
            format!("Who directed {name}?"),
        ];
        let texts: Vec<&str> = sentences.iter().map(String::as_str).collect();
        assert_eq!(extractor.extract(&texts).unwrap(), vec![Vec::<Triplet>::new(); texts.len()]);
    }
}

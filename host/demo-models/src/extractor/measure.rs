//! Exact-match accuracy of an extractor on sentences that are held out from training.

use anyhow::Result;
use corver_core::{Extractor, ExtractorInput, Triplet};
use corver_demo::{Sample, World};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

/// One in this many statements of a world is held out for the measurement.
const HELD_OUT_ONE_IN: u8 = 8;
/// Most errors in the report.
const MAX_ERRORS: usize = 20;

/// Accuracy of an extractor.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ExtractorQuality {
    /// Accuracy by the number of triplets that a sentence states, 0, 1 or 2.
    pub by_triplets: [ExactCount; 3],
    /// Some of the wrong sentences, with the extracted triplets.
    pub wrong: Vec<(String, Vec<Triplet>)>,
}

/// Counts of sentences and of exact matches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ExactCount {
    /// Number of sentences.
    pub sentences: usize,
    /// Number of sentences with exactly the right triplets in the right order.
    pub exact: usize,
}

#[cfg(test)]
impl ExactCount {
    /// Returns the share of exact matches; 1 without sentences.
    fn share(&self) -> f64 {
        if self.sentences == 0 { 1.0 } else { self.exact as f64 / self.sentences as f64 }
    }
}

impl ExtractorQuality {
    /// Returns the counts over all sentences.
    #[cfg(test)]
    fn total(&self) -> ExactCount {
        self.by_triplets.iter().fold(ExactCount::default(), |sum, part| ExactCount {
            sentences: sum.sentences + part.sentences,
            exact: sum.exact + part.exact,
        })
    }

    fn record(&mut self, sample: Sample, extracted: Vec<Triplet>) {
        let is_exact = extracted == sample.triplets;
        let count = &mut self.by_triplets[sample.triplets.len().min(2)];
        count.sentences += 1;
        count.exact += usize::from(is_exact);
        if !is_exact && self.wrong.len() < MAX_ERRORS {
            self.wrong.push((sample.text, extracted));
        }
    }
}

/// Returns true if a sentence is held out from training, which a hash of its text decides. Sentences
/// without a fact are never held out, because there are only few, such as “I don't know.”.
pub fn is_held_out(sample: &Sample) -> bool {
    !sample.triplets.is_empty()
        && blake3::hash(sample.text.as_bytes()).as_bytes()[0].is_multiple_of(HELD_OUT_ONE_IN)
}

/// Compares the extracted with the stated triplets of `num_sentences` sentences.
///
/// The sentences have the world's own proportions of facts. Those with a fact are all held out from
/// training.
///
/// # Errors
/// Fails if the extractor fails.
pub fn measure(
    extractor: &mut impl Extractor,
    world: &World,
    num_sentences: usize,
    seed: u64,
) -> Result<ExtractorQuality> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let samples: Vec<Sample> = (0..num_sentences).map(|_| draw_held_out(world, &mut rng)).collect();
    let inputs: Vec<ExtractorInput<'_>> =
        samples.iter().map(|sample| ExtractorInput::of_sentence(&sample.text)).collect();
    let extracted = extractor.extract(&inputs).map_err(anyhow::Error::from_boxed)?;
    let mut quality = ExtractorQuality::default();
    for (sample, triplets) in samples.into_iter().zip(extracted) {
        quality.record(sample, triplets);
    }
    Ok(quality)
}

/// Draws a number of facts as the world has them, and then sentences until one with this number is
/// held out.
fn draw_held_out(world: &World, rng: &mut impl Rng) -> Sample {
    let mut sample = world.sentence(rng);
    let num_triplets = sample.triplets.len();
    while sample.triplets.len() != num_triplets || (num_triplets > 0 && !is_held_out(&sample)) {
        sample = world.sentence(rng);
    }
    sample
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use corver_core::BoxError;
    use corver_demo::{WorldSize, demo_world, materialise};
    use corver_inference::extract::{Device, ExtractOptions, RuntimeLibrary};

    use super::*;

    /// An extractor that never returns a triplet.
    struct Blind;

    impl Extractor for Blind {
        fn extract(
            &mut self,
            inputs: &[ExtractorInput<'_>],
        ) -> Result<Vec<Vec<Triplet>>, BoxError> {
            Ok(vec![Vec::new(); inputs.len()])
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
            quality.by_triplets.iter().all(|count| count.sentences > 100),
            "{:?}",
            quality.by_triplets
        );
        assert_eq!(quality.wrong.len(), MAX_ERRORS);
    }

    #[test]
    fn measured_sentences_are_determined_by_seed() {
        #[derive(Default)]
        struct Recorder(HashMap<String, usize>);
        impl Extractor for Recorder {
            fn extract(
                &mut self,
                inputs: &[ExtractorInput<'_>],
            ) -> Result<Vec<Vec<Triplet>>, BoxError> {
                for input in inputs {
                    *self.0.entry(input.sentence.to_owned()).or_default() += 1;
                }
                Ok(vec![Vec::new(); inputs.len()])
            }
        }
        let world = World::generate(4, &WorldSize::default());
        let sentences = |seed| {
            let mut recorder = Recorder::default();
            measure(&mut recorder, &world, 700, seed).unwrap();
            recorder.0
        };
        assert_eq!(sentences(3), sentences(3));
        assert_ne!(sentences(3), sentences(4));
    }

    /// Opens the shipped extractor in ONNX Runtime.
    fn shipped() -> corver_inference::extract::OnnxExtractor {
        let cache = tempfile::tempdir().unwrap();
        let folder = materialise(cache.path()).unwrap().extractor;
        let runtime = RuntimeLibrary::find(None).unwrap();
        corver_inference::extract::OnnxExtractor::open(
            &folder,
            ExtractOptions::default(),
            Device::Cpu,
            &runtime,
        )
        .unwrap()
    }

    fn measure_shipped(world: &World) -> ExtractorQuality {
        measure(&mut shipped(), world, 1500, 20_240).unwrap()
    }

    #[test]
    fn demo_extractor_reads_held_out_sentences_exactly() {
        let quality = measure_shipped(&demo_world());
        for (num_triplets, count) in quality.by_triplets.iter().enumerate() {
            let is_good = count.sentences > 100 && count.share() >= 0.99;
            assert!(is_good, "{num_triplets} triplets: {count:?}\n{:#?}", quality.wrong);
        }
    }

    #[test]
    fn extractor_copies_names_of_other_worlds() {
        let quality = measure_shipped(&World::generate(99, &WorldSize::default()));
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
        let inputs: Vec<ExtractorInput<'_>> =
            sentences.iter().map(|sentence| ExtractorInput::of_sentence(sentence)).collect();
        assert_eq!(extractor.extract(&inputs).unwrap(), vec![Vec::<Triplet>::new(); inputs.len()]);
    }
}

//! The shipped extractor, through ONNX Runtime: exact on sentences that it was never trained on.

use std::path::Path;

use corver_core::{Extractor as _, Triplet};
use corver_demo::extractor::{ExtractorQuality, measure_extractor};
use corver_demo::{World, WorldSize, demo_world};
use corver_extract::{Device, Extractor, RuntimeLibrary};

fn shipped() -> Extractor {
    let bundle = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/extractor");
    Extractor::open(&bundle, Device::Cpu, &RuntimeLibrary::find(None).unwrap()).unwrap()
}

fn measured(world: &World) -> ExtractorQuality {
    measure_extractor(&mut shipped(), world, 1500, 20_240).unwrap()
}

#[test]
fn held_out_sentences_of_the_demo_are_read_exactly() {
    let quality = measured(&demo_world());
    for (num_triplets, tally) in quality.by_triplets.iter().enumerate() {
        let good = tally.sentences > 100 && tally.share() >= 0.99;
        assert!(good, "{num_triplets} triplets: {tally:?}\n{:#?}", quality.wrong);
    }
}

#[test]
fn names_of_other_worlds_are_copied_too() {
    let quality = measured(&World::generate(99, &WorldSize::default()));
    assert!(quality.total().share() >= 0.97, "{:?}\n{:#?}", quality.by_triplets, quality.wrong);
}

#[test]
fn a_sentence_without_a_fact_has_no_triplet() {
    let mut extractor = shipped();
    let world = demo_world();
    let name = &world.entities()[70].name;
    let sentences = ["unknown".to_owned(), "I don't know.".to_owned(), name.clone(), format!("Who directed {name}?")];
    let texts: Vec<&str> = sentences.iter().map(String::as_str).collect();
    assert_eq!(extractor.extract(&texts).unwrap(), vec![Vec::<Triplet>::new(); texts.len()]);
}

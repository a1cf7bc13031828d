//! Answers that `transformers` gave (`tests/peers/nli.py`).

use std::path::Path;

use corver_core::{Entailment, NliPair};
use corver_inference::nli::{Nli, NliSettings};
use corver_inference::onnx::{Device, RuntimeLibrary};
use serde::Deserialize;

/// One pair and its answer.
#[derive(Deserialize)]
pub struct Row {
    #[serde(flatten)]
    pub pair: NliPair,
    #[serde(flatten)]
    pub answer: Entailment,
}

/// golden.json of a folder.
pub fn rows(folder: &Path) -> Vec<Row> {
    serde_json::from_slice(&std::fs::read(folder.join("golden.json")).unwrap()).unwrap()
}

/// On the processor.
pub fn open(folder: &Path, settings: NliSettings) -> Nli {
    let settings = NliSettings { device: Device::Cpu, ..settings };
    Nli::open(folder, &settings, &RuntimeLibrary::find(None).unwrap()).unwrap()
}

/// The largest difference of two answers.
pub fn distance(one: &Entailment, other: &Entailment) -> f32 {
    let parts = |answer: &Entailment| [Some(answer.entail), answer.neutral, answer.contradict];
    let differences = parts(one).into_iter().zip(parts(other)).map(|parts| match parts {
        (Some(one), Some(other)) => (one - other).abs(),
        (None, None) => 0.0,
        _ => f32::INFINITY,
    });
    differences.fold(0.0, f32::max)
}

/// Asserts that all answers are the expected ones, and returns the largest difference.
pub fn check(folder: &Path, settings: NliSettings, most: f32) -> f32 {
    let rows = rows(folder);
    let pairs: Vec<NliPair> = rows.iter().map(|row| row.pair.clone()).collect();
    let answers = open(folder, settings.clone()).answers(&pairs).unwrap();
    assert_eq!(answers.len(), rows.len());
    let distances = answers.iter().zip(&rows).map(|(answer, row)| distance(answer, &row.answer));
    let largest = distances.fold(0.0, f32::max);
    let shown =
        rows.iter().zip(&answers).find(|(row, answer)| distance(answer, &row.answer) > most);
    if let Some((Row { pair, answer }, got)) = shown {
        panic!("{}, {settings:?}: {pair:?}\nours:   {got:?}\ntheirs: {answer:?}", folder.display());
    }
    largest
}

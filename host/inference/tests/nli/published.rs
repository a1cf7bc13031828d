//! The published HHEM-2.1 against the scores on its model card.

use std::path::PathBuf;

use corver_core::NliPair;
use corver_inference::nli::{Nli, NliSettings};
use corver_inference::onnx::RuntimeLibrary;

/// Premise, hypothesis, score.
const CARD: [(&str, &str, f32); 7] = [
    ("The capital of France is Berlin.", "The capital of France is Paris.", 0.0111),
    ("I am in California", "I am in United States.", 0.6474),
    ("I am in United States", "I am in California.", 0.1290),
    (
        "A person on a horse jumps over a broken down airplane.",
        "A person is outdoors, on a horse.",
        0.8969,
    ),
    (
        "A boy is jumping on skateboard in the middle of a red bridge.",
        "The boy skates down the sidewalk on a red bridge",
        0.1846,
    ),
    (
        "A man with blond-hair, and a brown shirt drinking out of a public water fountain.",
        "A blond man wearing a brown shirt is reading a book.",
        0.0050,
    ),
    ("Mark Wahlberg was a fan of Manny.", "Manny was a fan of Mark Wahlberg.", 0.0543),
];

#[test]
#[ignore = "needs the folder of vectara/hallucination_evaluation_model in CORVER_HHEM"]
fn hhem_scores_match_model_card() {
    let folder =
        PathBuf::from(std::env::var_os("CORVER_HHEM").expect("CORVER_HHEM names the folder"));
    let mut model =
        Nli::open(&folder, &NliSettings::default(), &RuntimeLibrary::find(None).unwrap()).unwrap();
    let pairs = CARD.map(|(premise, hypothesis, _)| NliPair {
        premise: premise.into(),
        hypothesis: hypothesis.into(),
    });
    let scores: Vec<f32> =
        model.answers(&pairs).unwrap().iter().map(|answer| answer.entail).collect();
    for ((_, hypothesis, expected), score) in CARD.iter().zip(&scores) {
        assert!((score - expected).abs() < 1e-4, "{hypothesis} {expected}: {scores:?}");
    }
}

//! Answers of small random models in the published form against those of `transformers` for the
//! same weights.

use std::path::{Path, PathBuf};

use crate::golden::{check, distance, open, rows};
use corver_core::{NliModel as _, NliPair};
use corver_inference::nli::NliSettings;

fn small(family: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nli/small").join(family)
}

const FAMILIES: [&str; 2] = ["hhem", "deberta"];

#[test]
fn entailment_scores_match_transformers() {
    for family in FAMILIES {
        check(&small(family), NliSettings::default(), 2e-6);
    }
}

#[test]
fn exported_graph_matches_transformers() {
    for family in FAMILIES {
        for place in ["onnx/model.onnx", "model.onnx"] {
            let folder = tempfile::tempdir().unwrap();
            std::fs::create_dir(folder.path().join("onnx")).unwrap();
            for name in ["config.json", "tokenizer.json", "golden.json"] {
                std::fs::copy(small(family).join(name), folder.path().join(name)).unwrap();
            }
            std::fs::copy(small(family).join("onnx/model.onnx"), folder.path().join(place))
                .unwrap();
            check(folder.path(), NliSettings::default(), 2e-6);
        }
    }
}

#[test]
fn entailment_is_independent_of_batch() {
    for family in FAMILIES {
        for (batch_size, max_batch_tokens) in
            [(1, 8192), (32, 16_384), (3, 8192), (32, 300), (32, 1)]
        {
            check(
                &small(family),
                NliSettings {
                    batch_size,
                    max_batch_tokens: Some(max_batch_tokens),
                    ..NliSettings::default()
                },
                2e-6,
            );
        }
    }
}

#[test]
fn equal_pairs_get_equal_answers_in_order() {
    for family in FAMILIES {
        let golden = rows(&small(family));
        let order = [3, 0, 3, 5, 0, 3];
        let pairs: Vec<NliPair> = order.iter().map(|&n| golden[n].pair.clone()).collect();
        let mut model = open(&small(family), NliSettings::default());
        let answers = model.entail(&pairs).unwrap();
        for (answer, n) in answers.iter().zip(order) {
            assert!(distance(answer, &golden[n].answer) < 2e-6, "{family} {n}");
        }
        assert_eq!((answers[0], answers[1]), (answers[2], answers[4]));
        assert!(model.entail(&[]).unwrap().is_empty());
    }
}

#[test]
fn overlong_pair_is_truncated_at_longer_text() {
    let long = "Asaph Hall discovered the two moons of Mars. ".repeat(40);
    let pair = |premise: &str, hypothesis: &str| NliPair {
        premise: premise.into(),
        hypothesis: hypothesis.into(),
    };
    for family in FAMILIES {
        let mut model =
            open(&small(family), NliSettings { max_tokens: Some(200), ..NliSettings::default() });
        // What is left out can say anything.
        let pairs = [
            pair(&long, "It is not known."),
            pair(&format!("{long} Who wrote it?"), "It is not known."),
            pair(&long, "It is known."),
        ];
        let answers = model.answers(&pairs).unwrap();
        assert_eq!(answers[0], answers[1], "{family}");
        assert_ne!(answers[0], answers[2], "{family}: the hypothesis is whole");
    }
}

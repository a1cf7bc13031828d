//! A rule in another language is the same rule: `make test-languages` builds them and runs this; without, it says so and
//! passes.

#[path = "../../../tests/golden.rs"]
mod golden;

use std::path::{Path, PathBuf};

use corver_core::{Count, Counter, PartError, Query, RuleSentence, Section, Triplet};
use corver_rules::{LoadOptions, Rule};
use serde_json::{Value, json};

/// A number of its own for every query, and none for some.
struct Hashed;

impl Counter for Hashed {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, PartError> {
        let count = |query: &Query| {
            let byte = blake3::hash(query.to_string().as_bytes()).as_bytes()[0];
            Count { query: query.clone(), occurrences: (byte > 8).then_some(u64::from(byte) / 6), exact: true }
        };
        Ok(queries.iter().map(count).collect())
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn load(path: &Path, settings: Value) -> Result<Rule, corver_rules::RuleError> {
    // An interpreter takes long to compile: the result is kept.
    let cache_dir = Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("rules"));
    Rule::load(path, LoadOptions { settings, cache_dir, ..LoadOptions::default() })
}

/// The published code's choices of triplets, as sentences.
fn sentences() -> Vec<RuleSentence> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let triplet = |triplet: &Value| {
        let [head, relation, tail] = triplet.as_array()?.as_slice() else { return None };
        Some(Triplet { head: text(head)?, relation: text(relation).unwrap_or_default(), tail: text(tail)? })
    };
    let rows = golden::reward_vectors("triplet_selection");
    // What comes before a triplet must not shift it. The first text begins the batch, where a decoder may drop its mark.
    let texts = ["\u{feff}Rome.", "", "It is so.", "Dvořák naît 🎻."].into_iter().cycle();
    let sentence = |((completion, row), text): ((u32, &Value), &str)| RuleSentence {
        completion,
        index: 0,
        text: text.into(),
        section: Section::Think,
        triplets: row["triplets"].as_array().expect("a list").iter().filter_map(triplet).collect(),
    };
    (0..).zip(&rows).zip(texts).map(sentence).collect()
}

/// The rule built from `sdk/LANGUAGE/example` judges as First does, and names wrong settings.
fn is_first(language: &str, no_number: &str) {
    let path = repository().join(format!("sdk/{language}/example/first-{language}.wasm"));
    if !path.exists() {
        eprintln!("skipped: {} is not built (`make test-languages`)", path.display());
        return;
    }
    for settings in [json!({}), json!({"tiers": {"thresholds": [2, 9, 30], "rewards": [-1, -0.5, 0, 0.25, 0.5]}})] {
        let first = load(&repository().join("plugins/dist/first.wasm"), settings.clone()).unwrap();
        let rule = load(&path, settings).unwrap();
        assert_eq!(rule.imports(), ["corver:reward/diagnostics@0.5.0"]);
        rule.conform().unwrap();
        let batch = sentences();
        let (expected, got) = (first.judge(&batch, &mut Hashed).unwrap(), rule.judge(&batch, &mut Hashed).unwrap());
        for (sentence, (expected, got)) in batch.iter().zip(expected.iter().zip(&got)) {
            assert_eq!(expected, got, "{sentence:?}");
        }
    }
    let refused = |settings| load(&path, settings).unwrap_err().to_string();
    assert!(refused(json!({"tires": {}})).contains("tires: unknown field `tires`, expected one of tiers"));
    assert!(refused(json!({"tiers": {"rewards": [1, "x"]}})).contains(no_number));
    assert!(refused(json!({"tiers": {"thresholds": [20, 5]}})).contains("tiers: `thresholds` must ascend"));
}

#[test]
fn first_is_the_same_rule_in_python() {
    is_first("python", "tiers.rewards[1]: 'x' is no number");
}

#[test]
fn first_is_the_same_rule_in_javascript() {
    is_first("js", "tiers.rewards[1]: \"x\" is no number");
}

//! A rule in another language is the same rule: `make test-languages` builds them and runs this; without, it says so and
//! passes.

#[path = "../../../tests/golden.rs"]
mod golden;

use std::path::{Path, PathBuf};

use corver_core::{Completion, CorpusSize, Count, Counter, PartError, Query, Section, Sentence, Triplet, Verifiers};
use corver_rules::{LoadOptions, Rule};
use serde_json::{Value, json};

/// A number of its own for every query, and none for some.
struct Hashed;

impl Counter for Hashed {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, PartError> {
        let count = |query: &Query| {
            let byte = blake3::hash(query.to_string().as_bytes()).as_bytes()[0];
            Count { occurrences: (byte > 8).then_some(u64::from(byte) / 6), exact: true }
        };
        Ok(queries.iter().map(count).collect())
    }

    fn size(&self) -> CorpusSize {
        CorpusSize { tokens: Some(u64::MAX), documents: None }
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
fn sentences() -> Vec<Sentence> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let triplet = |triplet: &Value| {
        let [head, relation, tail] = triplet.as_array()?.as_slice() else { return None };
        Some(Triplet { head: text(head)?, relation: text(relation).unwrap_or_default(), tail: text(tail)? })
    };
    let rows = golden::reward_vectors("triplet_selection");
    // What comes before a triplet must not shift it. The first text begins the batch, where a decoder may drop its mark.
    let texts = ["\u{feff}Rome.", "", "It is so.", "Dvořák naît 🎻."].into_iter().cycle();
    let sentence = |(row, text): (&Value, &str)| Sentence {
        text: text.into(),
        section: Section::Think,
        span: None,
        triplets: row["triplets"].as_array().expect("a list").iter().filter_map(triplet).collect(),
    };
    rows.iter().zip(texts).map(sentence).collect()
}

/// What was built from `sdk/LANGUAGE/example`; `None`, said aloud, where nothing was.
fn built(language: &str) -> Option<PathBuf> {
    let path = repository().join(format!("sdk/{language}/example/first-{language}.wasm"));
    if !path.exists() {
        eprintln!("skipped: {} is not built (`make test-languages`)", path.display());
        return None;
    }
    Some(path)
}

/// Whether both rules judge these sentences alike, a few to a completion.
fn assert_same(first: &Rule, rule: &Rule, sentences: &[Sentence]) {
    rule.conform().unwrap();
    let completion =
        |sentences| Completion {
            question: "Größe?", text: "\u{feff}Dvořák 🎻.", sentences, ..Completion::default()
        };
    let batch: Vec<Completion<'_>> = sentences.chunks(3).map(completion).collect();
    let judge = |rule: &Rule| rule.score(&batch, &mut Verifiers::counting(Hashed)).unwrap().concat();
    for (sentence, (expected, got)) in sentences.iter().zip(judge(first).iter().zip(judge(rule))) {
        assert_eq!(*expected, got, "{sentence:?}");
    }
}

/// The rule in this language judges as First does, and names wrong settings.
fn is_first(language: &str, no_number: &str) {
    let Some(path) = built(language) else { return };
    for settings in [json!({}), json!({"tiers": {"thresholds": [2, 9, 30], "rewards": [-1, -0.5, 0, 0.25, 0.5]}})] {
        let first = load(&repository().join("plugins/dist/first.wasm"), settings.clone()).unwrap();
        let rule = load(&path, settings).unwrap();
        assert_eq!(rule.imports(), ["corver:reward/diagnostics@0.1.0"]);
        assert_same(&first, &rule, &sentences());
    }
    let refused = |settings| load(&path, settings).unwrap_err().to_string();
    assert!(refused(json!({"tires": {}})).contains("tires: unknown field `tires`, expected one of tiers"));
    assert!(refused(json!({"tiers": {"rewards": [1, "x"]}})).contains(no_number));
    assert!(refused(json!({"tiers": {"thresholds": [20, 5]}})).contains("tiers: `thresholds` must ascend"));
}

#[test]
fn first_is_the_same_rule_in_python() {
    is_first("python", "tiers.rewards[1]: expected number, got 'x'");
}

#[test]
fn first_is_the_same_rule_in_javascript() {
    is_first("js", "tiers.rewards[1]: expected number, got \"x\"");
}

/// The rule in this language, written without an SDK, judges as First does where names are capitalised words.
fn is_first_for_names(language: &str) {
    let Some(path) = built(language) else { return };
    let sentence = |triplets: &[(&str, &str)]| {
        let triplet = |&(head, tail): &(&str, &str)| Triplet {
            head: head.into(),
            relation: "directed".into(),
            tail: tail.into(),
        };
        let triplets = triplets.iter().map(triplet).collect();
        Sentence { text: "It is so.".into(), section: Section::Answer, span: None, triplets }
    };
    let cities = ["Rome", "Paris", "Lima", "Oslo", "Quito", "Hanoi", "Accra", "Praha"];
    let mut sentences = vec![
        sentence(&[("Mario Camerini", "Il Seduttore"), ("Rome", "Italy")]),
        sentence(&[("Rome", ""), ("Mario Camerini", "the film Zazà")]),
        sentence(&[("Anna", "")]),
    ];
    sentences.extend(
        cities
            .iter()
            .flat_map(|a| cities.iter().filter(move |b| a != *b).map(move |b| (*a, *b)))
            .map(|pair| sentence(&[pair])),
    );
    let first = load(&repository().join("plugins/dist/first.wasm"), json!({})).unwrap();
    let rule = load(&path, json!({})).unwrap();
    assert_same(&first, &rule, &sentences);
    assert!(load(&path, json!({"tiers": {}})).unwrap_err().to_string().contains("settings: this rule has none"));
}

#[test]
fn first_is_the_same_rule_in_c() {
    is_first_for_names("c");
}

#[test]
fn first_is_the_same_rule_in_go() {
    is_first_for_names("go");
}

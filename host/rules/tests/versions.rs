//! Rules built against each version of the contract load as they did then, or are told how to rebuild. See `frozen/`.

use std::path::{Path, PathBuf};

use corver_core::sentence::split;
use corver_core::{Completion, Count, Counter, Grade, PartError, Query, Reading, RuleSentence, Section, Triplet};
use corver_rules::{Fault, LoadOptions, ResponseRule, Rule, RuleError};
use serde_json::{Value, json};

struct Sixes;

impl Counter for Sixes {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, PartError> {
        Ok(queries.iter().map(|query| Count { query: query.clone(), occurrences: Some(6), exact: false }).collect())
    }
}

fn frozen(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/frozen/rule-{version}.wasm"))
}

fn frozen_judge(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/frozen/judge-{version}.wasm"))
}

fn load(settings: Value) -> Result<Rule, RuleError> {
    Rule::load(&frozen("0.5.0"), LoadOptions { settings, ..LoadOptions::default() })
}

fn sentence(index: u32, section: Section, text: &str, triplets: &[[&str; 3]]) -> RuleSentence {
    let triplet = |triplet: &[&str; 3]| {
        let [head, relation, tail] = triplet.map(str::to_owned);
        Triplet { head, relation, tail }
    };
    RuleSentence { completion: 4, index, text: text.into(), section, triplets: triplets.iter().map(triplet).collect() }
}

#[test]
fn a_rule_of_0_5_0_says_what_it_said_then() {
    let rule = load(Value::Null).unwrap();
    let manifest = rule.manifest();
    assert_eq!((manifest.name.as_str(), manifest.version.as_str()), ("frozen", "1.0.0"));
    assert_eq!(manifest.summary, "uses every part of the contract");
    assert_eq!(manifest.settings_schema, r#"{"type":"object","additionalProperties":false}"#);

    let sentences = [
        sentence(0, Section::Think, "Größer", &[["Paris", "is in", "Peru"], ["Rome", "", "東京"]]),
        sentence(1, Section::Think, "", &[]),
        sentence(2, Section::Answer, "🎻.", &[]),
        sentence(3, Section::Answer, "Dvořák", &[["Nelahozeves", "", "Čechy"]]),
    ];
    let verdicts = rule.judge(&sentences, &mut Sixes).unwrap();
    assert_eq!(
        verdicts.iter().map(|verdict| verdict.reward).collect::<Vec<_>>(),
        [Some(40.25), None, None, Some(43.25)]
    );
    assert_eq!((verdicts[0].count, verdicts[0].triplet), (Some(6), Some(0)));
    for (verdict, [head, text, tail]) in [(0, ["Paris", "Größer", "Peru"]), (3, ["Nelahozeves", "Dvořák", "Čechy"])]
    {
        let query = Query::new([&[head, text][..], &[tail]]).with_enough(Some(9));
        assert_eq!(verdicts[verdict].counts, [Count { query, occurrences: Some(6), exact: false }]);
    }
    let notes = verdicts.iter().map(|verdict| verdict.note.as_deref());
    assert_eq!(notes.collect::<Vec<_>>(), [Some("is in Größer"), None, Some("no triplet"), Some(" Dvořák")]);
}

#[test]
fn its_complaints_arrive() {
    let error = load(json!({"reward": 3})).unwrap_err();
    let expected = r#"plugin frozen 1.0.0 refuses its settings: there are no settings; got {"reward":3}"#;
    assert_eq!(error.to_string(), expected);
    let error = load(Value::Null).unwrap().judge(&[sentence(0, Section::Body, "Größer", &[])], &mut Sixes).unwrap_err();
    let RuleError::Broken { fault, said, .. } = error else { panic!("{error}") };
    assert!(matches!(*fault, Fault::Trap(_)), "{fault}");
    assert_eq!(said, ["a sentence without a block"]);
}

#[test]
fn a_judge_of_0_5_0_says_what_it_said_then() {
    let judge = ResponseRule::load(&frozen_judge("0.5.0"), LoadOptions::default()).unwrap();
    assert_eq!((judge.name(), judge.manifest().version.as_str()), ("frozen-judge", "1.0.0"));
    let golds = ["Rome".to_owned(), "Roma".to_owned()];
    let grade = |text: &str| {
        let sentences = split(text, Reading::Paper).sentences;
        judge.grade(&[Completion { question: "Größer?", golds: &golds, text, sentences: &sentences }])
    };
    let gold = Grade { note: Some("Größer? A.|B.|Rome".into()), ..Grade::new(22.0, "GOLD") };
    assert_eq!(grade("<think>A. B.</think><answer>Rome</answer>").unwrap(), [gold]);
    assert_eq!(grade("Milan").unwrap(), [Grade::new(2.0, "OTHER")]);
    let RuleError::Broken { said, .. } = grade("").unwrap_err() else { panic!("it stops") };
    assert_eq!(said, ["a response without text"]);
}

#[test]
fn the_contract_of_today_has_a_frozen_rule() {
    let contract = include_str!("../../../wit/corver.wit");
    let version =
        contract.lines().find_map(|line| line.strip_prefix("package corver:reward@")?.strip_suffix(';')).unwrap();
    let file = frozen(version);
    assert!(file.is_file(), "{}: run host/rules/tests/frozen/build.sh, and keep what is there", file.display());
    assert!(file.metadata().unwrap().len() < 60_000);
}

fn assert_refused_with_advice(path: &Path, version: &str) {
    let error = Rule::load(path, LoadOptions::default()).unwrap_err();
    assert!(matches!(&error, RuleError::Version { found, spoken: "0.5.0", .. } if found == version), "{error}");
    let message = error.to_string();
    assert!(message.contains(&format!("speaks corver:reward@{version}; this host speaks 0.5.0")), "{message}");
    assert!(message.contains("Build the plugin again with the corver-sdk of this host"), "{message}");
}

#[test]
fn rules_of_earlier_versions_are_told_how_to_rebuild() {
    for version in ["0.1.0", "0.2.0", "0.3.0", "0.4.0"] {
        assert_refused_with_advice(&frozen(version), version);
    }
    for version in ["0.2.0", "0.3.0", "0.4.0"] {
        assert_refused_with_advice(&frozen_judge(version), version);
    }
}

/// Stands for every version to come: the rule of today, its contract's version changed in its bytes.
#[test]
fn other_versions_are_refused_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    for version in ["0.0.9", "0.6.0", "1.0.0"] {
        let wasm = std::fs::read(frozen("0.5.0")).unwrap();
        let changed = replaced(&wasm, b"@0.5.0", format!("@{version}").as_bytes());
        assert_ne!(changed, wasm);
        let path = folder.path().join(version);
        std::fs::write(&path, changed).unwrap();
        assert_refused_with_advice(&path, version);
    }
}

fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len(), "sections keep their lengths");
    let mut bytes = bytes.to_vec();
    for at in 0..=bytes.len() - from.len() {
        if bytes[at..].starts_with(from) {
            bytes[at..at + to.len()].copy_from_slice(to);
        }
    }
    bytes
}

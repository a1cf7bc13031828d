//! The shipped rules, as WebAssembly, through the whole host side.

use std::collections::BTreeMap;
use std::path::PathBuf;

use corver_core::{
    Backends, BoxError, Capability, Completion, CorpusInfo, Count, CountPrecision, Counter, Query,
    Section, Sentence, SentenceVerdict, Triplet,
};
use corver_rules::{Limits, LoadOptions, PluginKind, ResponseRule, Rule, RuleError};
use serde_json::{Value, json};

const DIRECTED: &str = "Mario AND Camerini AND Il AND Seduttore";
const STARRED: &str = "Il AND Seduttore AND Sophia AND Loren";

/// Counts by query text; unknown queries cannot be answered. Records its queries.
#[derive(Default)]
struct FakeIndex {
    counts: BTreeMap<String, u64>,
    asked: Vec<Query>,
}

impl FakeIndex {
    fn new(counts: &[(&str, u64)]) -> Self {
        Self {
            counts: counts.iter().map(|&(query, n)| (query.to_owned(), n)).collect(),
            asked: Vec::new(),
        }
    }
}

impl Counter for FakeIndex {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
        self.asked.extend_from_slice(queries);
        let count = |query: &Query| Count {
            occurrences: self.counts.get(&query.to_string()).copied(),
            precision: CountPrecision::Exact,
        };
        Ok(queries.iter().map(count).collect())
    }

    fn info(&self) -> CorpusInfo {
        CorpusInfo::default()
    }
}

fn built(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../plugins/dist")
        .join(name)
        .with_extension("wasm");
    assert!(path.exists(), "{} is not built: run plugins/build.sh", path.display());
    path
}

fn load(name: &str, settings: Value) -> Result<Rule, RuleError> {
    Rule::load(&built(name), LoadOptions { settings, ..LoadOptions::default() })
}

fn sentence(triplets: &[(&str, &str, &str)]) -> Sentence {
    let triplet = |&(head, relation, tail): &(&str, &str, &str)| Triplet {
        head: head.into(),
        relation: relation.into(),
        tail: tail.into(),
    };
    let triplets = triplets.iter().map(triplet).collect();
    Sentence { text: "It is so.".into(), section: Section::Think, span: None, triplets }
}

/// The paper's example.
fn film() -> Sentence {
    sentence(&[
        ("Mario Camerini", "directed", "Il Seduttore"),
        ("Il Seduttore", "starred", "Sophia Loren"),
    ])
}

/// The verdicts on completions of these sentences.
fn judge(rule: &Rule, completions: &[&[Sentence]], index: &mut FakeIndex) -> Vec<SentenceVerdict> {
    let completion = |sentences| Completion {
        question: "Who?",
        text: "It is so.",
        sentences,
        ..Completion::default()
    };
    let completions: Vec<Completion<'_>> = completions.iter().copied().map(completion).collect();
    rule.score(&completions, &mut Backends::counting(index)).unwrap().concat()
}

#[test]
fn shipped_rules_reproduce_paper_example() {
    let directed_so = format!("{DIRECTED} AND directed");
    let counts = [(DIRECTED, 50), (STARRED, 0), (directed_so.as_str(), 9)];
    for (name, reward, count, asked) in
        [("first", 0.1, 50, 1), ("min", -0.3, 0, 2), ("relcheck", 0.1, 50, 2)]
    {
        let rule = load(name, Value::Null).unwrap();
        assert_eq!((rule.name(), rule.manifest().version.as_str()), (name, "0.1.0"));
        let verdicts = judge(&rule, &[&[film()]], &mut FakeIndex::new(&counts));
        assert_eq!((verdicts[0].reward, verdicts[0].count), (Some(reward), Some(count)), "{name}");
        assert_eq!(verdicts[0].lookups.len(), asked, "{name}");
    }
    let loren = sentence(&[("Sophia Loren", "directed", "Il Seduttore")]);
    let mut index = FakeIndex::new(&[("Sophia AND Loren AND Il AND Seduttore", 20)]);
    index.counts.insert("Sophia AND Loren AND Il AND Seduttore AND directed".into(), 0);
    let verdicts = judge(&load("relcheck", Value::Null).unwrap(), &[&[loren]], &mut index);
    assert_eq!(verdicts[0].reward, Some(-0.05));
}

#[test]
fn every_shipped_rule_conforms() {
    let sources = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../plugins");
    let mut seen = 0;
    for entry in std::fs::read_dir(sources).unwrap().map(Result::unwrap) {
        if !entry.path().join("src").is_dir() {
            continue;
        }
        let name = entry.file_name().into_string().unwrap();
        seen += 1;
        if PluginKind::read(&built(&name), &Limits::default()).unwrap() == PluginKind::Response {
            let rule = ResponseRule::load(&built(&name), LoadOptions::default()).unwrap();
            assert_eq!(rule.name(), name);
            let conformance = rule.conform().unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(
                conformance.lowest <= 0.0 && conformance.highest > 0.0,
                "{name}: {conformance:?}"
            );
            continue;
        }
        let rule = load(&name, Value::Null).unwrap();
        assert_eq!(rule.name(), name);
        let conformance = rule.conform().unwrap_or_else(|error| panic!("{name}: {error}"));
        // A random chat reply rarely leads to a positive reward.
        let is_judged_by_chat = rule.manifest().requires.contains(&Capability::Chat);
        let both_ways = conformance.lowest < Some(0.0) && conformance.highest > Some(0.0);
        let says_something = conformance.scored > 0 && conformance.lowest < conformance.highest;
        assert!(says_something && (both_ways || is_judged_by_chat), "{name}: {conformance:?}");
    }
    assert!(seen >= 19, "only {seen} rules found");
}

#[test]
fn response_rule_grades_batches_and_respects_limits() {
    let judge = ResponseRule::load(&built("token-f1"), LoadOptions::default()).unwrap();
    let golds = ["Mario Camerini".to_owned()];
    let texts: Vec<String> =
        (0..200).map(|number| format!("<answer>Mario {number}</answer>")).collect();
    let completion =
        |text| Completion { question: "Who?", golds: &golds, text, ..Completion::default() };
    let completions: Vec<Completion<'_>> = texts.iter().map(|text| completion(text)).collect();
    let grades = judge.grade(&completions, &mut Backends::default()).unwrap();
    assert_eq!(grades.len(), 200, "several calls");
    assert!(
        grades.iter().all(|grade| grade.reward == 0.5 && grade.label == "BAD"),
        "{:?}",
        grades[0]
    );
    assert!(judge.grade(&[], &mut Backends::default()).unwrap().is_empty());
    assert_eq!(
        judge.grade(&[completion("Mario Camerini")], &mut Backends::default()).unwrap()[0].label,
        "NOT_ATTEMPTED",
        "no answer block: no answer"
    );

    let slow = Limits { call_ms: 1, memory_bytes: 64 << 10, ..Limits::default() };
    let error = ResponseRule::load(
        &built("token-f1"),
        LoadOptions { limits: slow, ..LoadOptions::default() },
    );
    assert!(error.unwrap_err().to_string().contains("limits.memory_bytes"));
    let wrong = Rule::load(&built("token-f1"), LoadOptions::default()).unwrap_err();
    assert!(
        wrong.to_string().contains(" is a response rule, and a sentence rule is needed here: "),
        "{wrong}"
    );
}

#[test]
fn anti_repeat_sees_neighbouring_sentences() {
    let rule = load("anti-repeat", Value::Null).unwrap();
    let verdicts =
        judge(&rule, &[&[film(), film()], &[film()]], &mut FakeIndex::new(&[(DIRECTED, 50)]));
    assert_eq!(
        verdicts.iter().map(|verdict| verdict.reward).collect::<Vec<_>>(),
        [Some(0.1), Some(0.0), Some(0.1)]
    );
}

#[test]
fn each_sentence_gets_its_count() {
    let rule = load("first", Value::Null).unwrap();
    let batch = [
        &[film(), sentence(&[])][..],
        &[sentence(&[("He", "directed", "Il Seduttore")])],
        &[film()],
    ];
    let mut index = FakeIndex::new(&[(DIRECTED, 3)]);
    let verdicts = judge(&rule, &batch, &mut index);
    let asked: Vec<String> = index.asked.iter().map(Query::to_string).collect();
    assert_eq!(asked, [DIRECTED, DIRECTED]);
    assert_eq!(index.asked[0].limit, Some(20));
    assert_eq!(
        verdicts.iter().map(|verdict| verdict.reward).collect::<Vec<_>>(),
        [Some(-0.1), None, None, Some(-0.1)]
    );
    assert_eq!(verdicts[3].lookups[0].count.occurrences, Some(3));
    assert_eq!(verdicts[1].note.as_deref(), Some("no valid triplet"));
}

#[test]
fn rule_settings_apply_and_errors_name_field() {
    let rule = load("first", json!({"tiers": {"rewards": [-1.0, -0.1, 0.0, 0.1]}})).unwrap();
    let verdicts = judge(&rule, &[&[film()]], &mut FakeIndex::new(&[(DIRECTED, 0)]));
    assert_eq!(verdicts[0].reward, Some(-1.0));

    let refused = |settings| match load("relcheck", settings) {
        Err(RuleError::InvalidSettings { plugin, message, .. }) => format!("{plugin}: {message}"),
        other => panic!("{other:?}"),
    };
    assert!(
        refused(json!({"penality": 0})).contains("relcheck: penality: unknown field `penality`")
    );
    assert!(
        refused(json!({"tiers": {"rewards": [1, "x"]}}))
            .contains("relcheck: tiers.rewards[1]: invalid type")
    );
    assert!(refused(json!({"tiers": {"thresholds": [20, 5]}})).contains("must ascend"));
    assert!(refused(json!([])).contains("invalid"));
    assert!(refused(json!({"penalty": 1e39})).contains("`penalty` must be a finite 32-bit number"));
}

#[test]
fn settings_schema_lists_defaults() {
    let rule = load("relcheck", Value::Null).unwrap();
    let schema: Value = serde_json::from_str(&rule.manifest().settings_schema).unwrap();
    assert_eq!(schema["properties"]["penalty"]["default"], json!(-0.05));
    assert_eq!(schema["properties"]["tiers"]["default"]["rewards"], json!([-0.3, -0.1, 0.0, 0.1]));
    assert_eq!(schema["additionalProperties"], json!(false));
}

#[test]
fn compiled_rules_are_cached_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../plugins/dist/first.wasm");
    let options =
        LoadOptions { cache_dir: Some(folder.path().join("rules")), ..LoadOptions::default() };
    let hash = Rule::load(&path, options.clone()).unwrap().hash().to_owned();
    assert_eq!(std::fs::read_dir(folder.path().join("rules")).unwrap().count(), 1);
    let again = Rule::load(&path, options).unwrap();
    assert_eq!((again.hash(), hash.len()), (hash.as_str(), 64));
}

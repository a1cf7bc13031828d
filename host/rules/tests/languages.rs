//! A rule in another language is the same rule: `make test-languages` builds them and runs this;
//! without them, it prints that and passes.

#[path = "../../../tests/golden.rs"]
mod golden;

use std::path::{Path, PathBuf};

use corver_core::{
    Backends, BoxError, ChatModel, ChatPrompt, ChatReply, ChatRole, Completion, CorpusInfo, Count,
    Counter, Credit, Entailment, Exchange, NliModel, NliPair, Passage, Query, Retriever, Search,
    Section, Sentence, SentenceVerdict, TokenReward, Triplet, Usage,
};
use corver_rules::{LoadOptions, ResponseRule, Rule};
use serde_json::{Value, json};

/// A number of its own for every query, and none for some.
struct Hashed;

impl Counter for Hashed {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
        let count = |query: &Query| {
            let byte = blake3::hash(query.to_string().as_bytes()).as_bytes()[0];
            Count::exact((byte > 8).then_some(u64::from(byte) / 6))
        };
        Ok(queries.iter().map(count).collect())
    }

    fn info(&self) -> CorpusInfo {
        CorpusInfo { tokens: Some(u64::MAX), documents: None, window: None, mode: None }
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn load(path: &Path, settings: Value) -> Result<Rule, corver_rules::RuleError> {
    Rule::load(path, options(settings))
}

/// An interpreter takes long to compile, so the result is cached.
fn options(settings: Value) -> LoadOptions {
    let cache_dir = Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("rules"));
    LoadOptions { settings, cache_dir, ..LoadOptions::default() }
}

/// The published code's choices of triplets, as sentences.
fn sentences() -> Vec<Sentence> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let triplet = |triplet: &Value| {
        let [head, relation, tail] = triplet.as_array()?.as_slice() else { return None };
        Some(Triplet {
            head: text(head)?,
            relation: text(relation).unwrap_or_default(),
            tail: text(tail)?,
        })
    };
    let rows = golden::reward_vectors("triplet_selection");
    // What comes before a triplet must not shift it. The first text begins the batch, where a
    // decoder may drop its mark.
    let texts = ["\u{feff}Rome.", "", "It is so.", "Dvořák naît 🎻."].into_iter().cycle();
    let sentence = |(row, text): (&Value, &str)| Sentence {
        text: text.into(),
        section: Section::Think,
        span: None,
        triplets: row["triplets"].as_array().expect("a list").iter().filter_map(triplet).collect(),
    };
    rows.iter().zip(texts).map(sentence).collect()
}

/// First, as it was built from `sdk/LANGUAGE/example`; `None`, with a message, if it was not.
fn built(language: &str) -> Option<PathBuf> {
    built_at(&format!("sdk/{language}/example/first-{language}.wasm"))
}

fn built_at(path: &str) -> Option<PathBuf> {
    let path = repository().join(path);
    if !path.exists() {
        eprintln!("skipped: {} is not built (`make test-languages`)", path.display());
        return None;
    }
    Some(path)
}

/// Checks that both rules give these sentences the same verdicts, three to a completion.
fn assert_same(first: &Rule, rule: &Rule, sentences: &[Sentence]) {
    rule.conform().unwrap();
    let completion = |sentences| Completion {
        question: "Größe?",
        text: "\u{feff}Dvořák 🎻.",
        sentences,
        ..Completion::default()
    };
    let batch: Vec<Completion<'_>> = sentences.chunks(3).map(completion).collect();
    let judge = |rule: &Rule| rule.score(&batch, &mut Backends::counting(Hashed)).unwrap().concat();
    for (sentence, (expected, got)) in sentences.iter().zip(judge(first).iter().zip(judge(rule))) {
        assert_eq!(*expected, got, "{sentence:?}");
    }
}

/// Checks that the rule in this language scores as First does, and names wrong settings.
fn assert_is_first(language: &str, no_number: &str) {
    let Some(path) = built(language) else { return };
    for settings in [
        json!({}),
        json!({"tiers": {"thresholds": [2, 9, 30], "rewards": [-1, -0.5, 0, 0.25, 0.5]}}),
    ] {
        let first = load(&repository().join("plugins/dist/first.wasm"), settings.clone()).unwrap();
        let rule = load(&path, settings).unwrap();
        assert_eq!(rule.imports(), ["corver:reward/diagnostics@0.1.0"]);
        assert_same(&first, &rule, &sentences());
    }
    let refused = |settings| load(&path, settings).unwrap_err().to_string();
    assert!(
        refused(json!({"tires": {}}))
            .contains("tires: unknown field `tires`, expected one of tiers")
    );
    assert!(refused(json!({"tiers": {"rewards": [1, "x"]}})).contains(no_number));
    assert!(
        refused(json!({"tiers": {"thresholds": [20, 5]}}))
            .contains("tiers: `thresholds` must ascend")
    );
}

#[test]
fn first_rule_in_python_matches_rust() {
    assert_is_first("python", "tiers.rewards[1]: expected number, got 'x'");
}

#[test]
fn first_rule_in_javascript_matches_rust() {
    assert_is_first("js", "tiers.rewards[1]: expected number, got \"x\"");
}

/// Checks that the rule in this language, written without an SDK, scores as First does if names
/// are capitalised words.
fn assert_is_first_for_names(language: &str) {
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
    assert!(
        load(&path, json!({"tiers": {}}))
            .unwrap_err()
            .to_string()
            .contains("settings: this rule has none")
    );
}

#[test]
fn first_rule_in_c_matches_rust() {
    assert_is_first_for_names("c");
}

#[test]
fn first_rule_in_go_matches_rust() {
    assert_is_first_for_names("go");
}

/// Finds two passages for all but "nothing", knows that Rome is old, and says yes to it.
struct Rome;

impl Retriever for Rome {
    fn passages(&mut self, searches: &[Search]) -> Result<Vec<Vec<Passage>>, BoxError> {
        let passage = |text: &str| Passage { title: "Öl".to_owned(), text: text.to_owned() };
        let found = |search: &Search| match search.query.as_str() {
            "nothing" => Vec::new(),
            query => vec![passage("Who knows?"), passage(query)],
        };
        Ok(searches.iter().map(found).collect())
    }
}

impl NliModel for Rome {
    fn entail(&mut self, pairs: &[NliPair]) -> Result<Vec<Entailment>, BoxError> {
        let entail = |pair: &NliPair| if pair.premise.contains("Rome") { 0.75 } else { 0.25 };
        let answer = |pair: &NliPair| Entailment {
            entail: entail(pair),
            neutral: Some(0.25),
            contradict: None,
        };
        Ok(pairs.iter().map(answer).collect())
    }
}

impl ChatModel for Rome {
    fn reply(&mut self, prompts: &[ChatPrompt]) -> Result<Vec<ChatReply>, BoxError> {
        let reply = |prompt: &ChatPrompt| {
            let roles: Vec<ChatRole> = prompt.messages.iter().map(|message| message.role).collect();
            assert_eq!(
                (roles, prompt.max_tokens, prompt.seed),
                (vec![ChatRole::System, ChatRole::User], 4, None)
            );
            let right = "Is the answer right?\n\n<title>Italy</title>\n<text>It has Rome. It is old.</text>\n\
                         <question>Where?</question>\n<answer>Rome</answer>";
            let is_right = prompt.messages[1].content == right;
            ChatReply {
                content: if is_right { "yes" } else { "nö" }.to_owned(),
                usage: Usage::default(),
            }
        };
        Ok(prompts.iter().map(reply).collect())
    }
}

/// Checks that the rule in this language requests passages and entailments, and rewards single tokens.
fn assert_entailed(language: &str) {
    let Some(path) = built_at(&format!("sdk/{language}/example/entailed/entailed-{language}.wasm"))
    else {
        return;
    };
    let sentence = |text: &str| Sentence {
        text: text.to_owned(),
        section: Section::Think,
        span: None,
        triplets: Vec::new(),
    };
    let sentences = ["Rome is old.", "nothing", "Öl 🎻."].map(sentence);
    let batch = [
        Completion { sentences: &sentences[..2], ..Completion::default() },
        Completion { sentences: &sentences[2..], ..Completion::default() },
    ];
    let judge = |settings| {
        let rule = load(&path, settings).unwrap();
        rule.conform().unwrap();
        let mut backends = Backends::counting(Hashed).with_nli(Rome).with_passages(Rome);
        rule.score(&batch, &mut backends).unwrap().concat()
    };
    let verdicts = judge(json!({}));
    let last = |character, reward| Credit::TokenRewards(vec![TokenReward { character, reward }]);
    assert_eq!([&verdicts[0].credit, &verdicts[2].credit], [&last(11, 1.0), &last(4, -1.0)]);
    let rewards: Vec<Option<f32>> = verdicts.iter().map(|verdict| verdict.reward).collect();
    assert_eq!(rewards, [Some(1.0), None, Some(-1.0)]);
    assert_eq!(verdicts[1].note.as_deref(), Some("no passage was found"));
    let kinds = |verdict: &SentenceVerdict| {
        let kind = |exchange: &Exchange| matches!(exchange, Exchange::Nli { .. });
        verdict.exchanges.iter().map(kind).collect::<Vec<_>>()
    };
    assert_eq!([kinds(&verdicts[0]), kinds(&verdicts[1])], [vec![false, true, true], vec![false]]);

    assert_eq!(judge(json!({"threshold": 0.8}))[0].reward, Some(-1.0));
    assert_eq!(judge(json!({"reward": 0.5}))[0].credit, last(11, 0.5));
}

#[test]
fn python_rule_sends_requests_and_rewards_tokens() {
    assert_entailed("python");
}

#[test]
fn javascript_rule_sends_requests_and_rewards_tokens() {
    assert_entailed("js");
}

/// Checks that the response rule in this language requests chat replies.
fn assert_judges_by_chat(language: &str) {
    let Some(path) = built_at(&format!("sdk/{language}/example/judge/judge-{language}.wasm"))
    else {
        return;
    };
    let rule = ResponseRule::load(&path, options(json!({}))).unwrap();
    rule.conform().unwrap();
    let evidence = ["It has Rome.", "It is old."].map(str::to_owned);
    let completion = |text| Completion {
        question: "Where?",
        title: Some("Italy"),
        evidence: &evidence,
        text,
        ..Completion::default()
    };
    let batch = ["<answer>Rome</question></answer>", "<answer></answer>", "<answer>Öl</answer>"]
        .map(completion);
    let grades = rule.grade(&batch, &mut Backends::counting(Hashed).with_chat(Rome)).unwrap();
    let said: Vec<_> = grades
        .iter()
        .map(|grade| (grade.reward, grade.label.as_str(), grade.note.as_deref()))
        .collect();
    assert_eq!(
        said,
        [(2.0, "GOOD", None), (-1.0, "NOT_ATTEMPTED", None), (-1.0, "BAD", Some("it says nö"))]
    );
    assert_eq!(grades.iter().map(|grade| grade.exchanges.len()).collect::<Vec<_>>(), [1, 0, 1]);
}

#[test]
fn python_judge_queries_chat_model() {
    assert_judges_by_chat("python");
}

#[test]
fn javascript_judge_queries_chat_model() {
    assert_judges_by_chat("js");
}

//! Rules that break the contract, and files that are no rules. Each ends in its own error, within
//! its limit; the engine that ran it then runs a good rule.

mod answers;
mod crossing;
mod files;
mod guest;
mod requests;
mod resources;
mod responses;

use std::path::Path;
use std::time::{Duration, Instant};

use corver_core::{
    Backends, BoxError, Completion, CorpusInfo, Count, Counter, Query, Section, Sentence,
    SentenceVerdict,
};
use corver_rules::{Compiler, Limits, PluginFile, Rule, RuleError, Sandbox};
use guest::Guest;
use serde_json::Value;

struct Nothing;

impl Counter for Nothing {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
        Ok(queries.iter().map(|_| Count::exact(None)).collect())
    }

    fn info(&self) -> CorpusInfo {
        CorpusInfo { tokens: Some(3 << 40), documents: None, window: Some(1_000), mode: None }
    }
}

fn load_in(sandbox: &Sandbox, bytes: &[u8]) -> Result<Rule, RuleError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hostile.wasm");
    std::fs::write(&path, bytes).unwrap();
    sandbox.load(&PluginFile::unpinned(&path), None, &Value::Null)
}

fn load(bytes: &[u8], limits: Limits) -> Result<Rule, RuleError> {
    load_in(&Sandbox::new(limits, Compiler::InProcess).unwrap(), bytes)
}

/// Scores one sentence.
fn judge(rule: &Rule) -> Result<SentenceVerdict, RuleError> {
    judge_text(rule, "Well.")
}

fn judge_text(rule: &Rule, text: &str) -> Result<SentenceVerdict, RuleError> {
    let sentences =
        [Sentence { text: text.into(), section: Section::Body, span: None, triplets: Vec::new() }];
    let completion = Completion {
        question: "Who?",
        text: "Well.",
        sentences: &sentences,
        ..Completion::default()
    };
    Ok(rule.score(&[completion], &mut Backends::counting(Nothing))?.remove(0).remove(0))
}

/// Loads the rule and scores one sentence; returns the error.
fn error_of(bytes: &[u8], limits: &Limits) -> RuleError {
    let sandbox = Sandbox::new(limits.clone(), Compiler::InProcess).unwrap();
    let started = Instant::now();
    let error = load_in(&sandbox, bytes).and_then(|rule| judge(&rule)).expect_err("it is hostile");
    // Three calls, of which one may use up its time; the rest is for a machine with other work.
    let bound = Duration::from_millis(limits.call_ms) + Duration::from_secs(20);
    assert!(started.elapsed() < bound, "{error}: after {:?}", started.elapsed());
    assert_still_runs(&sandbox);
    error
}

/// The engine still runs a rule that keeps the contract.
fn assert_still_runs(sandbox: &Sandbox) {
    let good = load_in(sandbox, &Guest::default().module()).unwrap();
    assert_eq!(judge(&good).unwrap().reward, Some(0.0));
}

fn fault_of(guest: &Guest, limits: &Limits) -> String {
    fault_in(error_of(&guest.module(), limits))
}

/// The fault in the error's text, without the rule's name and its reports.
fn fault_in(error: RuleError) -> String {
    let (RuleError::Broken(message) | RuleError::LimitExceeded(message)) = &error else {
        panic!("{error:?}")
    };
    let named = message.strip_prefix("plugin hostile 1.2.3 ");
    let unnamed = || message.split_once("/hostile.wasm (unnamed) ").map(|(_, fault)| fault);
    let fault = named.or_else(unnamed).unwrap_or_else(|| panic!("{message}"));
    fault.split("; it reported: ").next().unwrap().to_owned()
}

/// The fault of a rule that scores like this.
fn score_fault(score: &'static str, limits: &Limits) -> String {
    fault_of(&Guest::scoring(score), limits)
}

#[test]
fn conforming_modules_and_components_run() {
    for bytes in [Guest::default().module(), Guest::default().component()] {
        let rule = load(&bytes, Limits::default()).unwrap();
        assert_eq!((rule.name(), rule.manifest().version.as_str()), ("hostile", "1.2.3"));
        assert_eq!(judge(&rule).unwrap().reward, Some(0.0));
    }
}

#[test]
fn fault_leaves_no_state_for_next_batch() {
    // Faults in its second call; every batch has a first call alone.
    let counts = "(global $calls (mut i32) (i32.const 0))";
    let score = "(global.set $calls (i32.add (global.get $calls) (i32.const 1)))
        (if (i32.gt_u (global.get $calls) (i32.const 1)) (then unreachable)) i32.const 336";
    let rule =
        load(&Guest { extra: counts, score, ..Guest::default() }.module(), Limits::default())
            .unwrap();
    for _ in 0..3 {
        judge(&rule).unwrap();
    }
}

#[test]
fn consequence_of_every_limit_is_documented() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md");
    let page = std::fs::read_to_string(page).unwrap();
    let Value::Object(limits) = serde_json::to_value(Limits::default()).unwrap() else {
        unreachable!("a struct")
    };
    for name in limits.keys() {
        assert!(page.contains(&format!("`{name}`")), "docs/security.md does not list {name}");
    }
}

//! A rule returns the input as the raw bytes of its outcomes: the host reads them, or reports a
//! fault.
#![no_main]

#[path = "../../rules/tests/hostile/guest.rs"]
#[allow(dead_code, reason = "shared with the tests of the crate")]
mod guest;

use std::sync::LazyLock;

use corver_core::{
    Backends, BoxError, Completion, CorpusInfo, Count, Counter, Query, Section, Sentence, Triplet,
};
use corver_rules::{Limits, LoadOptions, Rule, RuleError};
use guest::Guest;
use libfuzzer_sys::fuzz_target;

struct Nothing;

impl Counter for Nothing {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
        Ok(vec![Count::exact(Some(3)); queries.len()])
    }

    fn info(&self) -> CorpusInfo {
        CorpusInfo::default()
    }
}

/// A rule that decodes the completion's text to bytes, two characters each, writes them to its
/// memory from address 4,096 on, and returns that address.
static RULE: LazyLock<Rule> = LazyLock::new(|| {
    let answer = "(local $at i32) (local $from i32) (local $to i32)
        (local.set $from (i32.load offset=36 (local.get $completions)))
        (local.set $to (i32.add (local.get $from) (i32.load offset=40 (local.get $completions))))
        (local.set $at (i32.const 4096))
        (block (loop
            (br_if 1 (i32.ge_u (local.get $from) (local.get $to)))
            (i32.store8 (local.get $at) (i32.or
                (i32.shl (i32.and (i32.load8_u (local.get $from)) (i32.const 15)) (i32.const 4))
                (i32.and (i32.load8_u offset=1 (local.get $from)) (i32.const 15))))
            (local.set $at (i32.add (local.get $at) (i32.const 1)))
            (local.set $from (i32.add (local.get $from) (i32.const 2)))
            (br 0)))
        i32.const 4096";
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    let path = folder.path().join("rule.wasm");
    let guest = Guest { resume: "i32.const 4096", ..Guest::scoring(answer) };
    std::fs::write(&path, guest.module()).expect("the folder is writable");
    let limits = Limits { call_ms: 1_000, ..Limits::default() };
    Rule::load(&path, LoadOptions { limits, ..LoadOptions::default() })
        .expect("it keeps the contract so far")
});

fuzz_target!(|answer: &[u8]| {
    let text: String = answer
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|half| char::from(b'@' + half))
        .collect();
    let sentence = |text: &str| Sentence {
        text: text.into(),
        section: Section::Body,
        span: None,
        triplets: vec![Triplet { head: "a".into(), relation: "b".into(), tail: "c".into() }],
    };
    let sentences = [sentence("One."), sentence("Two.")];
    let completion = Completion { text: &text, sentences: &sentences, ..Completion::default() };
    match RULE.score(&[completion], &mut Backends::counting(Nothing)) {
        Ok(verdicts) => assert_eq!(verdicts.concat().len(), 2),
        Err(RuleError::Broken(_) | RuleError::LimitExceeded(_)) => {}
        Err(error) => panic!("{error}"),
    }
});

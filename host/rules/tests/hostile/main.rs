//! Rules that break the contract: each ends in its own error, within its limit, and the host goes on.

mod guest;

use std::path::Path;

use corver_core::{Count, Counter, PartError, Query, RuleSentence, Section, Verdict};
use corver_rules::{Fault, Limits, LoadOptions, Rule, RuleError};
use guest::{Guest, SCORE_ZERO};

struct Nothing;

impl Counter for Nothing {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, PartError> {
        Ok(queries.iter().map(|query| Count { query: query.clone(), occurrences: None, exact: true }).collect())
    }
}

fn load(bytes: &[u8], limits: Limits) -> Result<Rule, RuleError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hostile.wasm");
    std::fs::write(&path, bytes).unwrap();
    Rule::load(&path, LoadOptions { limits, ..LoadOptions::default() })
}

fn judge(rule: &Rule) -> Result<Vec<Verdict>, RuleError> {
    let sentence =
        RuleSentence { completion: 3, index: 5, text: "Well.".into(), section: Section::Body, triplets: Vec::new() };
    rule.judge(&[sentence], &mut Nothing)
}

fn fault_of(result: Result<impl Sized, RuleError>) -> Fault {
    match result.map(|_| ()) {
        Err(RuleError::Broken { fault, .. }) => *fault,
        other => panic!("{other:?}"),
    }
}

/// The fault of a rule that scores like this. It loads, and it faults again in the next batch just the same.
fn score_fault(score: &'static str, limits: Limits) -> Fault {
    let rule = load(&Guest { score, ..Guest::default() }.module(), limits).unwrap();
    let fault = fault_of(judge(&rule));
    assert_eq!(fault_of(judge(&rule)).to_string(), fault.to_string());
    fault
}

fn refusal(bytes: &[u8]) -> String {
    load(bytes, Limits::default()).unwrap_err().to_string()
}

#[test]
fn modules_and_components_that_keep_the_contract_run() {
    for bytes in [Guest::default().module(), Guest::default().component()] {
        let rule = load(&bytes, Limits::default()).unwrap();
        assert_eq!((rule.name(), rule.manifest().version.as_str()), ("hostile", "1.2.3"));
        assert_eq!(judge(&rule).unwrap()[0].reward, Some(0.0));
    }
}

#[test]
fn endless_loops_end_at_the_time_limit() {
    let limits = Limits { call_ms: 50, ..Limits::default() };
    let started = std::time::Instant::now();
    assert_eq!(score_fault("(loop (br 0)) unreachable", limits.clone()), Fault::Time { limit_ms: 50 });
    assert!(started.elapsed().as_secs() < 10);
    let describe = Guest { describe: "(loop (br 0)) unreachable", ..Guest::default() };
    assert_eq!(fault_of(load(&describe.module(), limits.clone())), Fault::Time { limit_ms: 50 });
    let start = Guest { extra: "(func $start (loop (br 0))) (start $start)", ..Guest::default() };
    assert_eq!(fault_of(load(&start.module(), limits)), Fault::Time { limit_ms: 50 });
}

#[test]
fn memory_is_bounded_grown_or_declared() {
    let bomb = "(loop (drop (memory.grow (i32.const 256))) (br 0)) unreachable";
    let limits = Limits { memory_bytes: 32 << 20, ..Limits::default() };
    assert_eq!(score_fault(bomb, limits.clone()), Fault::Memory { limit: 32 << 20, asked: 16 << 20 });
    let declared = Guest { pages: 1024, ..Guest::default() };
    assert_eq!(fault_of(load(&declared.module(), limits)), Fault::Memory { limit: 32 << 20, asked: 64 << 20 });
}

#[test]
fn tables_are_bounded() {
    let guest = Guest {
        extra: "(table $t 1 funcref)",
        score: "(drop (table.grow $t (ref.null func) (i32.const 1000000))) i32.const 320",
        ..Guest::default()
    };
    let rule = load(&guest.module(), Limits::default()).unwrap();
    assert_eq!(fault_of(judge(&rule)), Fault::Table { limit: 100_000, asked: 1_000_000 });
}

#[test]
fn endless_recursion_ends_at_the_stack_limit() {
    let score = "(call $score (local.get 0) (local.get 1)) (i32.const 1) i32.add";
    assert_eq!(score_fault(score, Limits::default()), Fault::Stack { limit: 512 << 10 });
}

#[test]
fn a_traps_last_words_reach_the_user() {
    let score = "(call $report (i32.const 32) (i32.const 21)) unreachable";
    assert!(matches!(score_fault(score, Limits::default()), Fault::Trap(_)));
    let error = judge(&load(&Guest { score, ..Guest::default() }.module(), Limits::default()).unwrap()).unwrap_err();
    assert!(error.to_string().contains("plugin hostile 1.2.3 stopped with a trap"), "{error}");
    assert!(error.to_string().ends_with("it reported: panicked at rule.rs:7"), "{error}");
    assert!(matches!(score_fault("(i32.div_u (i32.const 1) (i32.const 0))", Limits::default()), Fault::Trap(_)));
}

#[test]
fn reports_are_bounded_in_number_and_size() {
    let score = "(local $n i32) (loop
        (call $report (i32.const 32) (i32.const 21))
        (br_if 0 (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 100000)))) unreachable";
    let limits = Limits { reports: 2, text_bytes: 8, ..Limits::default() };
    let rule = load(&Guest { score, ..Guest::default() }.module(), limits).unwrap();
    let Err(RuleError::Broken { said, .. }) = judge(&rule) else { panic!("it traps") };
    assert_eq!(said, ["panicked", "panicked"]);
}

#[test]
fn rewards_are_finite() {
    for reward in ["nan", "inf", "-inf"] {
        let score = format!("(f32.store (i32.const 264) (f32.const {reward})) {SCORE_ZERO}");
        let fault = score_fault(score.leak(), Limits::default());
        assert!(matches!(fault, Fault::NotFinite { completion: 3, index: 5, .. }), "{fault:?}");
    }
}

#[test]
fn there_is_one_outcome_per_sentence() {
    let none = "(i32.store (i32.const 324) (i32.const 0)) i32.const 320";
    assert_eq!(score_fault(none, Limits::default()), Fault::Outcomes { expected: 1, got: 0 });
    let many = "(i32.store (i32.const 324) (i32.const 9)) i32.const 320";
    assert_eq!(score_fault(many, Limits::default()), Fault::Outcomes { expected: 1, got: 9 });
}

/// `abstain` with a note of so many bytes from address 0 on.
fn note(bytes: u32) -> &'static str {
    format!(
        "(i32.store8 (i32.const 256) (i32.const 1)) (i32.store8 (i32.const 264) (i32.const 1))
         (i32.store (i32.const 272) (i32.const {bytes})) i32.const 320"
    )
    .leak()
}

#[test]
fn texts_and_whole_answers_are_bounded() {
    let too_long = Fault::Text { what: "note", limit: 65_536, got: 200_000 };
    assert_eq!(score_fault(note(200_000), Limits::default()), too_long);
    let limits = Limits { output_bytes: 100_000, ..Limits::default() };
    let fault = score_fault(note(200_000), limits);
    assert!(matches!(fault, Fault::Answer { limit: 100_000, .. }), "{fault:?}");
    let name = Guest { describe: "(i32.store (i32.const 68) (i32.const 200000)) i32.const 64", ..Guest::default() };
    let too_long = Fault::Text { what: "name", limit: 65_536, got: 200_000 };
    assert_eq!(fault_of(load(&name.module(), Limits::default())), too_long);
}

#[test]
fn forged_answers_are_refused() {
    let beyond_memory = note(1 << 30);
    let list_beyond_memory = "(i32.store (i32.const 324) (i32.const 0x7fffffff)) i32.const 320";
    let no_such_case = "(i32.store8 (i32.const 256) (i32.const 7)) i32.const 320";
    let no_such_address = "i32.const -8";
    let misaligned = "i32.const 321";
    let not_utf8 = "(i32.store8 (i32.const 0) (i32.const 255)) (i32.store8 (i32.const 256) (i32.const 1))
        (i32.store8 (i32.const 264) (i32.const 1)) (i32.store (i32.const 272) (i32.const 4)) i32.const 320";
    for score in [beyond_memory, list_beyond_memory, no_such_case, no_such_address, misaligned, not_utf8] {
        let fault = score_fault(score, Limits::default());
        assert!(matches!(fault, Fault::Answer { .. }), "{score}: {fault:?}");
    }
}

/// `ask` with so many queries, all of them at address 400: one clause of `words` words, the texts at address 0.
fn ask(queries: u32, words: u32) -> &'static str {
    format!(
        "(i32.store8 (i32.const 256) (i32.const 2))
         (i32.store (i32.const 264) (i32.const 400)) (i32.store (i32.const 268) (i32.const {queries}))
         (i32.store (i32.const 400) (i32.const 40000)) (i32.store (i32.const 404) (i32.const 1))
         (i32.store (i32.const 40000) (i32.const 50000)) (i32.store (i32.const 40004) (i32.const {words}))
         (i32.store (i32.const 50004) (i32.const 7)) i32.const 320"
    )
    .leak()
}

#[test]
fn questions_are_bounded() {
    assert_eq!(score_fault(ask(1, 1), Limits::default()), Fault::Rounds { limit: 4, open: 1 });
    let fault = score_fault(ask(65, 1), Limits::default());
    assert_eq!(fault, Fault::SentenceQueries { completion: 3, index: 5, limit: 64, got: 65 });
    assert_eq!(score_fault(ask(1, 300), Limits::default()), Fault::Words { limit: 256, got: 300 });
    assert_eq!(score_fault(ask(1, 0), Limits::default()), Fault::Words { limit: 256, got: 0 });
    let limits = Limits { queries_per_batch: 0, ..Limits::default() };
    assert_eq!(score_fault(ask(1, 1), limits), Fault::BatchQueries { limit: 0, got: 1 });
}

#[test]
fn verdicts_name_triplets_that_exist() {
    let score = "(i32.store8 (i32.const 288) (i32.const 1)) i32.const 320";
    assert_eq!(score_fault(score, Limits::default()), Fault::Triplet { completion: 3, index: 5, triplets: 0, got: 0 });
}

#[test]
fn foreign_imports_are_named() {
    let extra = r#"(import "wasi_snapshot_preview1" "fd_write" (func (param i32 i32 i32 i32) (result i32)))"#;
    // Imports come first in a module.
    let wat =
        wat::parse_str(format!(r#"(module {extra} (func (export "corver:reward/sentence-scoring@0.1.0#score")))"#));
    let mut module = wat.unwrap();
    module.extend(b"\0\x0f\x0ecomponent-type"); // an empty section of that name
    let message = refusal(&module);
    assert!(message.contains("imports `wasi_snapshot_preview1#fd_write`"), "{message}");
    assert!(message.contains("--target wasm32-unknown-unknown"), "{message}");

    let component = |import: &str| {
        wat::parse_str(format!(
            r#"(component (import "{import}" (instance)) (instance $e) (export "corver:reward/sentence-scoring@0.1.0" (instance $e)))"#
        ))
        .unwrap()
    };
    assert!(refusal(&component("wasi:io/poll@0.2.9")).contains("imports `wasi:io/poll@0.2.9`"));
    assert!(refusal(&component("corver:reward/secrets@0.1.0")).contains("imports `corver:reward/secrets@0.1.0`"));
    let hollow = refusal(&component("corver:reward/types@0.1.0"));
    assert!(hollow.contains("no valid WebAssembly"), "{hollow}");
}

#[test]
fn other_versions_are_refused_with_advice() {
    let newer = Guest { version: "0.2.0", ..Guest::default() };
    for bytes in [newer.module(), newer.component()] {
        let message = refusal(&bytes);
        assert!(message.contains("speaks corver:reward@0.2.0; this host speaks 0.1.0"), "{message}");
        assert!(message.contains("Rebuild the plugin"), "{message}");
    }
}

#[test]
fn what_is_no_rule_is_refused() {
    let plain = refusal(&Guest::default().plain_module());
    assert!(plain.contains("no CorVer rule") && plain.contains("corver_sdk::export!"), "{plain}");
    assert!(refusal(b"\0asm\x0d\0\x01\0").contains("does not export corver:reward/sentence-scoring"));
    assert!(refusal(b"#!/bin/sh\n").contains("is not a WebAssembly file"));
    assert!(refusal(b"").contains("is not a WebAssembly file"));
    assert!(matches!(Rule::load(Path::new("/no/such/rule.wasm"), LoadOptions::default()), Err(RuleError::Read { .. })));
    let limits = Limits { file_bytes: 10, ..Limits::default() };
    assert!(matches!(load(&Guest::default().module(), limits), Err(RuleError::FileSize { limit: 10, .. })));
}

#[test]
fn damaged_files_are_refused_wherever_they_break_off() {
    for whole in [Guest::default().module(), Guest::default().component()] {
        for length in (4..whole.len()).step_by(7) {
            load(&whole[..length], Limits::default()).unwrap_err();
        }
        // Any error or none: a flipped bit may be harmless. What must not happen is a crash.
        for at in (8..whole.len()).step_by(5) {
            let mut flipped = whole.clone();
            flipped[at] ^= 0x24;
            let limits = Limits { call_ms: 50, ..Limits::default() };
            let _ = load(&flipped, limits).map(|rule| judge(&rule));
        }
    }
}

#[test]
fn a_refusal_of_settings_is_in_the_rules_own_words() {
    // `error` with the text at 32.
    let configure = "(i32.store8 (i32.const 128) (i32.const 1)) (i32.store (i32.const 132) (i32.const 32))
        (i32.store (i32.const 136) (i32.const 21)) i32.const 128";
    let error = load(&Guest { configure, ..Guest::default() }.module(), Limits::default()).unwrap_err();
    assert_eq!(error.to_string(), "plugin hostile 1.2.3 refuses its settings: panicked at rule.rs:7");
}

/// A batch with `n` sentences needs the guest's own memory for its input, so the host's way in is bounded as well.
#[test]
fn input_that_does_not_fit_is_the_rules_fault() {
    let rule = load(&Guest::default().module(), Limits::default()).unwrap();
    let long = RuleSentence {
        completion: 0,
        index: 0,
        text: "x".repeat(1 << 20),
        section: Section::Body,
        triplets: Vec::new(),
    };
    // This guest never grows its 256 KiB.
    assert!(matches!(fault_of(rule.judge(&[long], &mut Nothing)), Fault::Answer { .. }));
}

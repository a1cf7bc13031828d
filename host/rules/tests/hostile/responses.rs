//! Response rules that break the contract. Files, memory, tables and stack are held as for sentence
//! rules, by the same code.

use corver_core::{Backends, Completion, Grade};
use corver_rules::{Limits, LoadOptions, ResponseRule, RuleError};
use wit_component::{StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use crate::answers::UNREADABLE;
use crate::{Nothing, fault_in};

/// A response rule whose `grade` has this body. Address 252 holds `done`, and 256 its grade `0.0
/// hostile` (reward; label; note), address 320 a list with that outcome alone.
fn assessing(assess: &str) -> Vec<u8> {
    let interface = "corver:reward/response-grading@0.1.0";
    let mut module = wat::parse_str(format!(
        r#"(module
            (memory (export "memory") 4)
            (global $top (mut i32) (i32.const 65536))
            (data (i32.const 0) "hostile")
            (data (i32.const 16) "1.2.3")
            (data (i32.const 64) "\00\00\00\00\07\00\00\00\10\00\00\00\05\00\00\00\00\00\00\00\07\00\00\00\00\00\00\00\00\00\00\00")
            (data (i32.const 256) "\00\00\00\00\00\00\00\00\07\00\00\00\00\00\00\00")
            (data (i32.const 320) "\fc\00\00\00\01\00\00\00")
            (func (export "cabi_realloc") (param i32 i32 i32) (param $size i32) (result i32) (local $at i32)
                (local.set $at (i32.and (i32.add (global.get $top) (i32.const 7)) (i32.const -8)))
                (global.set $top (i32.add (local.get $at) (local.get $size)))
                (local.get $at))
            (func (export "{interface}#describe") (result i32) i32.const 64)
            (func (export "{interface}#configure") (param i32 i32) (result i32) i32.const 128)
            (func (export "{interface}#grade") (param i32 i32 i32 i64 i32 i64 i32 i64 i32 i32) (result i32) {assess})
            (func (export "{interface}#resume") (param i32 i32) (result i32) i32.const 320))"#
    ))
    .unwrap();
    let mut resolve = Resolve::default();
    let package =
        resolve.push_source("corver.wit", include_str!("../../../../wit/corver.wit")).unwrap();
    let world = resolve.select_world(&[package], Some("response-rule")).unwrap();
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
    module
}

fn grade(assess: &str, limits: &Limits) -> Result<Vec<Grade>, RuleError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hostile.wasm");
    std::fs::write(&path, assessing(assess)).unwrap();
    let rule = ResponseRule::load(
        &path,
        LoadOptions { limits: limits.clone(), ..LoadOptions::default() },
    )?;
    let completion = Completion { question: "Who?", text: "Rome", ..Completion::default() };
    rule.grade(&[completion], &mut Backends::counting(Nothing))
}

fn fault(assess: &str) -> String {
    let limits = Limits { call_ms: 100, text_bytes: 5_000, ..Limits::default() };
    let error = grade(assess, &limits).expect_err("it is hostile");
    assert!(error.to_string().starts_with("plugin hostile "), "{error}");
    fault_in(error)
}

#[test]
fn conforming_response_rule_runs() {
    assert_eq!(grade("i32.const 320", &Limits::default()).unwrap(), [Grade::new(0.0, "hostile")]);
}

#[test]
fn invalid_grades_are_rejected() {
    for (reward, shown) in [("nan", "NaN"), ("inf", "inf"), ("-inf", "-inf")] {
        let assess = format!("(f32.store (i32.const 256) (f32.const {reward})) i32.const 320");
        let expected = format!("gave completion 0 the reward {shown}; it must be finite");
        assert_eq!(fault(&assess), expected);
    }
    for count in [0, 2] {
        let assess = format!("(i32.store (i32.const 324) (i32.const {count})) i32.const 320");
        assert_eq!(
            fault(&assess),
            format!("returned outcomes of {count} completions; there are 1")
        );
    }
    for length in [0, 65] {
        let assess = format!("(i32.store (i32.const 264) (i32.const {length})) i32.const 320");
        let fault = fault(&assess);
        assert!(fault.starts_with("gave completion 0 the label "), "{length} bytes: {fault}");
    }
}

#[test]
fn response_answers_are_limited_and_forgeries_rejected() {
    let note = |length: u32| {
        format!(
            "(i32.store8 (i32.const 268) (i32.const 1)) (i32.store (i32.const 272) (i32.const 1000))
             (i32.store (i32.const 276) (i32.const {length})) i32.const 320"
        )
    };
    assert_eq!(
        fault(&note(5_001)),
        "gave a note of 5001 bytes; at most 5000 are allowed (limits.text_bytes)"
    );
    let list_beyond_memory = "(i32.store (i32.const 324) (i32.const 0x7fffffff)) i32.const 320";
    let not_utf8 = "(i32.store8 (i32.const 0) (i32.const 255)) i32.const 320";
    for forged in [&note(u32::MAX), list_beyond_memory, not_utf8, "i32.const -8"] {
        assert!(fault(forged).starts_with(UNREADABLE), "{forged}");
    }
}

#[test]
fn response_requests_are_limited_and_need_capability() {
    // Pending on one request at 2,000, which is `chat`.
    let pending = "(i32.store8 (i32.const 252) (i32.const 1)) (i32.store (i32.const 256) (i32.const 2000))
        (i32.store (i32.const 260) (i32.const 1)) (i32.store8 (i32.const 2000) (i32.const 2)) i32.const 320";
    assert_eq!(fault(pending), "requests chat, which its manifest does not list (`requires`)");
    let limits = Limits { requests_per_completion: 0, ..Limits::default() };
    let fault = fault_in(grade(pending, &limits).expect_err("it makes too many requests"));
    assert_eq!(
        fault,
        "made 1 requests about completion 0; at most 0 are allowed \
         (limits.requests_per_completion)"
    );
}

#[test]
fn response_rule_loops_and_traps_stop() {
    assert_eq!(
        fault("(loop (br 0)) unreachable"),
        "ran longer than 100 ms in one call (limits.call_ms)"
    );
    assert!(fault("unreachable").starts_with("stopped with a trap: "));
}

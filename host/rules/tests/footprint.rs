//! The memory of hostile rules is released. The test has its own process, because others would
//! change the measured memory.
#![cfg(target_os = "linux")]

#[path = "hostile/guest.rs"]
#[allow(dead_code, reason = "shared with the tests in hostile/")]
mod guest;

use corver_core::{
    Backends, BoxError, Completion, CorpusInfo, Count, Counter, Query, Section, Sentence,
};
use corver_rules::{Compiler, Limits, PluginFile, RuleError, Sandbox};
use guest::{Guest, RECURSION};
use serde_json::Value;

struct Nothing;

impl Counter for Nothing {
    fn count(&mut self, _: &[Query]) -> Result<Vec<Count>, BoxError> {
        Ok(Vec::new())
    }

    fn info(&self) -> CorpusInfo {
        CorpusInfo::default()
    }
}

/// Bytes of this process in main memory.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Loads the rule and has it fault, more often than in any run.
fn abuse(sandbox: &Sandbox, guest: &Guest, times: usize) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hostile.wasm");
    std::fs::write(&path, guest.module()).unwrap();
    let rule = sandbox.load(&PluginFile::unpinned(&path), None, &Value::Null).unwrap();
    let text = "x".repeat(1 << 20);
    let sentences = [Sentence { text, section: Section::Body, span: None, triplets: Vec::new() }];
    let completion =
        Completion { question: "", text: "", sentences: &sentences, ..Completion::default() };
    for _ in 0..times {
        let error = rule.score(&[completion], &mut Backends::counting(Nothing)).unwrap_err();
        assert!(matches!(error, RuleError::Broken(_) | RuleError::LimitExceeded(_)), "{error}");
    }
}

#[test]
fn sandbox_memory_is_released_after_abuse() {
    const TOLERANCE: usize = 24 << 20;
    let sandbox = Sandbox::new(Limits::default(), Compiler::InProcess).unwrap();
    // 192 MiB, every page of it written; a table of 95,000; half a MiB of stack; an answer of 60
    // MB.
    let memory = Guest {
        score: "(drop (memory.grow (i32.const 3000)))
            (memory.fill (i32.const 2000000) (i32.const 7) (i32.const 190000000)) unreachable",
        pages: 32,
        ..Guest::default()
    };
    let table = Guest {
        extra: "(table $t 1 funcref)",
        score: "(drop (table.grow $t (ref.func $score) (i32.const 95000))) unreachable",
        pages: 32,
        ..Guest::default()
    };
    let stack = Guest { pages: 32, ..Guest::scoring(RECURSION) };
    let answer = Guest {
        score: "(drop (memory.grow (i32.const 1000)))
            (i32.store8 (i32.const 256) (i32.const 1)) (i32.store8 (i32.const 264) (i32.const 1))
            (i32.store (i32.const 268) (i32.const 2000000)) (i32.store (i32.const 272) (i32.const 60000000)) i32.const 336",
        pages: 32,
        ..Guest::default()
    };
    for (what, guest) in
        [("memory", memory), ("table", table), ("stack", stack), ("answer", answer)]
    {
        abuse(&sandbox, &guest, 2);
        let before = resident();
        abuse(&sandbox, &guest, 20);
        let after = resident();
        assert!(after < before + TOLERANCE, "{what}: {before} bytes before, {after} after");
        assert!(after < 200 << 20, "{what}: {after} bytes are still held");
    }
}

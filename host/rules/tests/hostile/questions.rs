//! What a rule asks: how often, how much, and about what.

use corver_rules::{Fault, Limits};

use crate::guest::Guest;
use crate::{fault_of, score_fault};

/// `ask` with so many queries, the first with one clause of `words` words, each of `bytes` bytes; the others are empty.
fn ask(queries: u32, words: u32, bytes: u32) -> &'static str {
    let length = words * (bytes + 1) - 1;
    format!(
        "(local $at i32)
         (memory.fill (i32.const 50000) (i32.const 0x78) (i32.const {length})) ;; x
         (loop
            (local.set $at (i32.add (local.get $at) (i32.const {bytes})))
            (i32.store8 offset=50000 (local.get $at) (i32.const 9)) ;; a tab
            (br_if 0 (i32.lt_u (local.tee $at (i32.add (local.get $at) (i32.const 1))) (i32.const {length}))))
         {}",
        ask_text(queries, 50_000, length)
    )
    .leak()
}

/// `ask` with so many queries, the first with the text at this address; the others are empty.
fn ask_text(queries: u32, address: u32, length: u32) -> &'static str {
    format!(
        "(i32.store8 (i32.const 256) (i32.const 2))
         (i32.store (i32.const 264) (i32.const 400)) (i32.store (i32.const 268) (i32.const {queries}))
         (i32.store (i32.const 400) (i32.const {address})) (i32.store (i32.const 404) (i32.const {length}))
         i32.const 320"
    )
    .leak()
}

#[test]
fn rounds_are_bounded() {
    for rounds in [0, 4] {
        let limits = Limits { rounds, ..Limits::default() };
        assert_eq!(score_fault(ask(1, 1, 7), &limits), Fault::Rounds { limit: rounds, open: 1 });
    }
}

#[test]
fn queries_are_bounded_by_sentence_and_by_batch() {
    let fault = Fault::SentenceQueries { completion: 3, index: 5, limit: 64, got: 65 };
    assert_eq!(score_fault(ask(65, 1, 7), &Limits::default()), fault);
    let fault = Fault::SentenceQueries { completion: 3, index: 5, limit: 64, got: 2_000 };
    assert_eq!(score_fault(ask(2_000, 1, 7), &Limits::default()), fault);
    let limits = Limits { queries_per_batch: 0, ..Limits::default() };
    assert_eq!(score_fault(ask(1, 1, 7), &limits), Fault::BatchQueries { limit: 0, got: 1 });
}

#[test]
fn queries_have_words_of_bounded_number_and_size() {
    assert_eq!(score_fault(ask(1, 300, 7), &Limits::default()), Fault::Words { limit: 256, got: 300 });
    // The second query is empty.
    assert_eq!(score_fault(ask(2, 1, 7), &Limits::default()), Fault::Words { limit: 256, got: 0 });
    // As many and as long as may be; the text as a whole is longer.
    let limits = Limits { text_bytes: 500, rounds: 0, ..Limits::default() };
    assert_eq!(score_fault(ask(1, 256, 500), &limits), Fault::Rounds { limit: 0, open: 1 });
    assert_eq!(score_fault(ask(1, 2, 501), &limits), Fault::Text { what: "query word", limit: 500, got: 501 });
}

/// How a rule ends that asks for this text and accepts any answer; line feeds and tabs are written `\n` and `\t`.
fn asking(text: &str) -> Fault {
    let extra = format!(r#"(data (i32.const 50000) "{text}")"#).leak();
    let length = text.len() - text.matches('\\').count();
    let limits = Limits { words_per_query: 4, rounds: 0, ..Limits::default() };
    fault_of(&Guest { extra, ..Guest::scoring(ask_text(1, 50_000, length as u32)) }, &limits)
}

#[test]
fn words_are_counted_over_all_clauses() {
    assert_eq!(asking(r"red\n\t\nfox\tden\n"), Fault::Words { limit: 4, got: 6 });
    for nothing in ["", r"\n", r"\t\n\t"] {
        assert_eq!(asking(nothing), Fault::Words { limit: 4, got: 0 }, "{nothing}");
    }
    // What has no answer may be asked.
    for text in [r"red\tfox\nden\tfox", r"red\n", r"\tred", r"red\n\nfox"] {
        assert_eq!(asking(text), Fault::Rounds { limit: 0, open: 1 }, "{text}");
    }
}

#[test]
fn what_is_said_to_the_answers_is_held_to_the_same() {
    let nan = "(i32.store8 (i32.const 256) (i32.const 0)) (f32.store (i32.const 264) (f32.const nan)) i32.const 320";
    let two = "(i32.store (i32.const 324) (i32.const 2)) i32.const 320";
    let forged = "(i32.store (i32.const 324) (i32.const 0x7fffffff)) i32.const 320";
    let limits = Limits { call_ms: 200, ..Limits::default() };
    let fault = |resume| fault_of(&Guest { score: ask(1, 1, 7), resume, ..Guest::default() }, &limits);
    assert!(matches!(fault(nan), Fault::NotFinite { completion: 3, index: 5, .. }));
    assert_eq!(fault(two), Fault::Outcomes { expected: 1, got: 2 });
    assert!(matches!(fault(forged), Fault::Answer { .. }));
    assert!(matches!(fault("unreachable"), Fault::Trap(_)));
    assert_eq!(fault("(loop (br 0)) unreachable"), Fault::Time { limit_ms: 200 });
}

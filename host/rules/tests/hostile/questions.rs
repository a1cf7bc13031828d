//! What a rule asks: how often, how much, and about what.

use corver_core::Verifier;
use corver_rules::{Fault, Limits};

use crate::guest::Guest;
use crate::{fault_of, score_fault};

/// `ask` with so many queries, the first with clauses of so many words, each of `bytes` bytes; the
/// others have no clause.
///
/// Requests are at 400,000, clauses at 60,000, their words, all the same, at 62,000, the word's
/// bytes at 100,000.
fn ask_clauses(queries: u32, clauses: &[u32], bytes: u32) -> &'static str {
    let mut lists = String::new();
    for (i, words) in clauses.iter().enumerate() {
        let at = 60_000 + 8 * i;
        lists += &format!(
            "(i32.store (i32.const {at}) (i32.const 62000)) (i32.store (i32.const {}) (i32.const {words}))",
            at + 4
        );
    }
    format!(
        "(local $at i32)
         (drop (memory.grow (i32.const 8)))
         (memory.fill (i32.const 100000) (i32.const 0x78) (i32.const {bytes})) ;; x
         (loop
            (i32.store offset=62000 (local.get $at) (i32.const 100000))
            (i32.store offset=62004 (local.get $at) (i32.const {bytes}))
            (br_if 0 (i32.lt_u (local.tee $at (i32.add (local.get $at) (i32.const 8))) (i32.const 3360))))
         {lists}
         (i32.store (i32.const 400008) (i32.const 60000)) (i32.store (i32.const 400012) (i32.const {}))
         (i32.store8 (i32.const 256) (i32.const 2))
         (i32.store (i32.const 264) (i32.const 400000)) (i32.store (i32.const 268) (i32.const {queries}))
         i32.const 336",
        clauses.len()
    )
    .leak()
}

/// `ask` with so many queries, the first with one clause of `words` words, each of `bytes` bytes;
/// the others have no clause.
fn ask(queries: u32, words: u32, bytes: u32) -> &'static str {
    ask_clauses(queries, &[words], bytes)
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
    let fault = Fault::SentenceQuestions { completion: 0, index: 0, limit: 64, got: 65 };
    assert_eq!(score_fault(ask(65, 1, 7), &Limits::default()), fault);
    let fault = Fault::SentenceQuestions { completion: 0, index: 0, limit: 64, got: 2_000 };
    assert_eq!(score_fault(ask(2_000, 1, 7), &Limits::default()), fault);
    let limits = Limits { queries_per_batch: 0, ..Limits::default() };
    let fault =
        Fault::BatchQuestions { what: "queries", setting: "queries_per_batch", limit: 0, got: 1 };
    assert_eq!(score_fault(ask(1, 1, 7), &limits), fault);
}

#[test]
fn what_the_manifest_does_not_name_is_not_asked() {
    for (case, verifier) in [(1, Verifier::Nli), (2, Verifier::Chat), (3, Verifier::Passages)] {
        let score = format!(
            "(i32.store8 (i32.const 256) (i32.const 2)) (i32.store (i32.const 264) (i32.const 2000))
             (i32.store (i32.const 268) (i32.const 1)) (i32.store8 (i32.const 2000) (i32.const {case})) i32.const 336"
        );
        assert_eq!(score_fault(score.leak(), &Limits::default()), Fault::Undeclared { verifier });
    }
}

#[test]
fn queries_have_words_of_bounded_number_and_size() {
    assert_eq!(
        score_fault(ask(1, 300, 7), &Limits::default()),
        Fault::Words { limit: 256, got: 300 }
    );
    // The second query is empty.
    assert_eq!(score_fault(ask(2, 1, 7), &Limits::default()), Fault::Words { limit: 256, got: 0 });
    // As many and as long as may be; the text as a whole is longer.
    let limits = Limits { text_bytes: 500, rounds: 0, ..Limits::default() };
    assert_eq!(
        score_fault(ask_clauses(1, &[64; 4], 500), &limits),
        Fault::Rounds { limit: 0, open: 1 }
    );
    assert_eq!(score_fault(ask(1, 65, 7), &limits), Fault::ClauseWords { limit: 64, got: 65 });
    assert_eq!(
        score_fault(ask(1, 2, 501), &limits),
        Fault::Text { what: "query word", limit: 500, got: 501 }
    );
}

#[test]
fn words_are_counted_over_all_clauses() {
    let asking = |clauses: &[u32], bytes| {
        let limits = Limits { words_per_query: 4, rounds: 0, ..Limits::default() };
        score_fault(ask_clauses(1, clauses, bytes), &limits)
    };
    // An empty clause is as large as a word.
    assert_eq!(asking(&[1, 0, 2, 2, 1], 7), Fault::Words { limit: 4, got: 7 });
    assert_eq!(asking(&[1, 0, 0, 0, 0], 7), Fault::Words { limit: 4, got: 5 });
    for nothing in [&[][..], &[0], &[0, 0]] {
        assert_eq!(asking(nothing, 7), Fault::Words { limit: 4, got: 0 }, "{nothing:?}");
    }
    // What has no count may be asked: empty clauses, empty words.
    for (clauses, bytes) in [(&[2, 2][..], 7), (&[1, 0], 7), (&[0, 0, 2], 7), (&[1, 1], 0)] {
        assert_eq!(asking(clauses, bytes), Fault::Rounds { limit: 0, open: 1 }, "{clauses:?}");
    }
}

#[test]
fn what_is_said_to_the_answers_is_held_to_the_same() {
    let nan = "(i32.store8 (i32.const 256) (i32.const 0)) (f32.store (i32.const 264) (f32.const nan)) i32.const 336";
    let two = "(i32.store (i32.const 324) (i32.const 2)) i32.const 336";
    let forged = "(i32.store (i32.const 324) (i32.const 0x7fffffff)) i32.const 336";
    let limits = Limits { call_ms: 200, ..Limits::default() };
    let fault =
        |resume| fault_of(&Guest { score: ask(1, 1, 7), resume, ..Guest::default() }, &limits);
    assert!(matches!(fault(nan), Fault::NotFinite { completion: 0, index: 0, .. }));
    assert_eq!(fault(two), Fault::Outcomes { completion: 0, expected: 1, got: 2 });
    assert!(matches!(fault(forged), Fault::Answer { .. }));
    assert!(matches!(fault("unreachable"), Fault::Trap(_)));
    assert_eq!(fault("(loop (br 0)) unreachable"), Fault::Time { limit_ms: 200 });
}

//! What a rule asks: how often, how much, and about what.

use corver_rules::Limits;

use crate::answers::UNREADABLE;
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

/// The fault of a rule that asks about its one sentence in each of so many rounds, and once more.
fn still_asks(rounds: u32) -> String {
    format!("still asks about 1 of what it judges after {rounds} rounds of answers (limits.rounds)")
}

fn words(got: usize, limit: usize) -> String {
    format!(
        "asked for a query of {got} words; from 1 to {limit} are allowed (limits.words_per_query)"
    )
}

#[test]
fn rounds_are_bounded() {
    for rounds in [0, 4] {
        let limits = Limits { rounds, ..Limits::default() };
        assert_eq!(score_fault(ask(1, 1, 7), &limits), still_asks(rounds));
    }
}

#[test]
fn queries_are_bounded_by_sentence_and_by_batch() {
    for got in [65, 2_000] {
        let fault = format!(
            "asked {got} questions about sentence 0 of completion 0; at most 64 are allowed \
             (limits.requests_per_sentence)"
        );
        assert_eq!(score_fault(ask(got, 1, 7), &Limits::default()), fault);
    }
    let limits = Limits { queries_per_batch: 0, ..Limits::default() };
    let fault = "asked 1 queries in one batch; at most 0 are allowed (limits.queries_per_batch)";
    assert_eq!(score_fault(ask(1, 1, 7), &limits), fault);
}

#[test]
fn undeclared_verifier_request_is_rejected() {
    for (case, verifier) in [(1, "nli"), (2, "chat"), (3, "passages")] {
        let score = format!(
            "(i32.store8 (i32.const 256) (i32.const 2)) (i32.store (i32.const 264) (i32.const 2000))
             (i32.store (i32.const 268) (i32.const 1)) (i32.store8 (i32.const 2000) (i32.const {case})) i32.const 336"
        );
        let fault = format!("asks {verifier}, which its manifest does not name (`requires`)");
        assert_eq!(score_fault(score.leak(), &Limits::default()), fault);
    }
}

#[test]
fn query_word_count_and_size_are_limited() {
    assert_eq!(score_fault(ask(1, 300, 7), &Limits::default()), words(300, 256));
    // The second query is empty.
    assert_eq!(score_fault(ask(2, 1, 7), &Limits::default()), words(0, 256));
    // As many and as long as may be; the text as a whole is longer.
    let limits = Limits { text_bytes: 500, rounds: 0, ..Limits::default() };
    assert_eq!(score_fault(ask_clauses(1, &[64; 4], 500), &limits), still_asks(0));
    let clause = "asked for a clause of 65 words; at most 64 are allowed (limits.words_per_clause)";
    assert_eq!(score_fault(ask(1, 65, 7), &limits), clause);
    assert_eq!(
        score_fault(ask(1, 2, 501), &limits),
        "gave a query word of 501 bytes; at most 500 are allowed (limits.text_bytes)"
    );
}

#[test]
fn words_are_counted_over_all_clauses() {
    let asking = |clauses: &[u32], bytes| {
        let limits = Limits { words_per_query: 4, rounds: 0, ..Limits::default() };
        score_fault(ask_clauses(1, clauses, bytes), &limits)
    };
    // An empty clause is as large as a word.
    assert_eq!(asking(&[1, 0, 2, 2, 1], 7), words(7, 4));
    assert_eq!(asking(&[1, 0, 0, 0, 0], 7), words(5, 4));
    for nothing in [&[][..], &[0], &[0, 0]] {
        assert_eq!(asking(nothing, 7), words(0, 4), "{nothing:?}");
    }
    // What has no count may be asked: empty clauses, empty words.
    for (clauses, bytes) in [(&[2, 2][..], 7), (&[1, 0], 7), (&[0, 0, 2], 7), (&[1, 1], 0)] {
        assert_eq!(asking(clauses, bytes), still_asks(0), "{clauses:?}");
    }
}

#[test]
fn resumed_answers_obey_same_limits() {
    let nan = "(i32.store8 (i32.const 256) (i32.const 0)) (f32.store (i32.const 264) (f32.const nan)) i32.const 336";
    let two = "(i32.store (i32.const 324) (i32.const 2)) i32.const 336";
    let forged = "(i32.store (i32.const 324) (i32.const 0x7fffffff)) i32.const 336";
    let limits = Limits { call_ms: 200, ..Limits::default() };
    let fault =
        |resume| fault_of(&Guest { score: ask(1, 1, 7), resume, ..Guest::default() }, &limits);
    assert_eq!(fault(nan), "gave sentence 0 of completion 0 the reward NaN; it must be finite");
    assert_eq!(fault(two), "answered the 1 sentences of completion 0 with 2 outcomes");
    assert!(fault(forged).starts_with(UNREADABLE));
    assert!(fault("unreachable").starts_with("stopped with a trap: "));
    assert_eq!(
        fault("(loop (br 0)) unreachable"),
        "ran longer than 200 ms in one call (limits.call_ms)"
    );
}

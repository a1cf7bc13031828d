//! Requests of a rule: their number, size and kind.

use corver_rules::Limits;

use crate::answers::UNREADABLE;
use crate::guest::Guest;
use crate::{fault_of, score_fault};

/// Returns a `score` that is pending on `queries` counts. The clauses of the first have these
/// numbers of words, each of `bytes` bytes; the others have no clause.
///
/// Requests are at 400,000, clauses at 60,000, their words, all the same, at 62,000, the word's
/// bytes at 100,000.
fn request_clauses(queries: u32, clauses: &[u32], bytes: u32) -> &'static str {
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

/// Returns a `score` that is pending on `queries` counts. The first has one clause of `words` words,
/// each of `bytes` bytes; the others have no clause.
fn request(queries: u32, words: u32, bytes: u32) -> &'static str {
    request_clauses(queries, &[words], bytes)
}

/// The fault of a rule whose one sentence is pending in each of `rounds` rounds, and once more.
fn still_pending(rounds: u32) -> String {
    format!("still has 1 pending outcomes after {rounds} rounds of replies (limits.rounds)")
}

fn words(got: usize, limit: usize) -> String {
    format!(
        "requested the count of a query of {got} words; from 1 to {limit} are allowed \
         (limits.words_per_query)"
    )
}

#[test]
fn rounds_are_bounded() {
    for rounds in [0, 4] {
        let limits = Limits { rounds, ..Limits::default() };
        assert_eq!(score_fault(request(1, 1, 7), &limits), still_pending(rounds));
    }
}

#[test]
fn queries_are_bounded_by_sentence_and_by_batch() {
    for got in [65, 2_000] {
        let fault = format!(
            "made {got} requests about sentence 0 of completion 0; at most 64 are allowed \
             (limits.requests_per_sentence)"
        );
        assert_eq!(score_fault(request(got, 1, 7), &Limits::default()), fault);
    }
    let limits = Limits { queries_per_batch: 0, ..Limits::default() };
    let fault = "requested 1 counts in one batch; at most 0 are allowed (limits.queries_per_batch)";
    assert_eq!(score_fault(request(1, 1, 7), &limits), fault);
}

#[test]
fn undeclared_capability_request_is_rejected() {
    for (case, capability) in [(1, "nli"), (2, "chat"), (3, "passages")] {
        let score = format!(
            "(i32.store8 (i32.const 256) (i32.const 2)) (i32.store (i32.const 264) (i32.const 2000))
             (i32.store (i32.const 268) (i32.const 1)) (i32.store8 (i32.const 2000) (i32.const {case})) i32.const 336"
        );
        let fault = format!("requests {capability}, which its manifest does not list (`requires`)");
        assert_eq!(score_fault(score.leak(), &Limits::default()), fault);
    }
}

#[test]
fn query_word_count_and_size_are_limited() {
    assert_eq!(score_fault(request(1, 300, 7), &Limits::default()), words(300, 256));
    // The second query is empty.
    assert_eq!(score_fault(request(2, 1, 7), &Limits::default()), words(0, 256));
    // As many and as long as may be; the text as a whole is longer.
    let limits = Limits { text_bytes: 500, rounds: 0, ..Limits::default() };
    assert_eq!(score_fault(request_clauses(1, &[64; 4], 500), &limits), still_pending(0));
    let clause = "requested the count of a clause of 65 words; at most 64 are allowed \
                  (limits.words_per_clause)";
    assert_eq!(score_fault(request(1, 65, 7), &limits), clause);
    assert_eq!(
        score_fault(request(1, 2, 501), &limits),
        "gave a query word of 501 bytes; at most 500 are allowed (limits.text_bytes)"
    );
}

#[test]
fn words_are_counted_over_all_clauses() {
    let asking = |clauses: &[u32], bytes| {
        let limits = Limits { words_per_query: 4, rounds: 0, ..Limits::default() };
        score_fault(request_clauses(1, clauses, bytes), &limits)
    };
    // An empty clause is as large as a word.
    assert_eq!(asking(&[1, 0, 2, 2, 1], 7), words(7, 4));
    assert_eq!(asking(&[1, 0, 0, 0, 0], 7), words(5, 4));
    for nothing in [&[][..], &[0], &[0, 0]] {
        assert_eq!(asking(nothing, 7), words(0, 4), "{nothing:?}");
    }
    // A query without a count may be requested: empty clauses, empty words.
    for (clauses, bytes) in [(&[2, 2][..], 7), (&[1, 0], 7), (&[0, 0, 2], 7), (&[1, 1], 0)] {
        assert_eq!(asking(clauses, bytes), still_pending(0), "{clauses:?}");
    }
}

#[test]
fn resumed_answers_obey_same_limits() {
    let nan = "(i32.store8 (i32.const 256) (i32.const 0)) (f32.store (i32.const 264) (f32.const nan)) i32.const 336";
    let two = "(i32.store (i32.const 324) (i32.const 2)) i32.const 336";
    let forged = "(i32.store (i32.const 324) (i32.const 0x7fffffff)) i32.const 336";
    let limits = Limits { call_ms: 200, ..Limits::default() };
    let fault =
        |resume| fault_of(&Guest { score: request(1, 1, 7), resume, ..Guest::default() }, &limits);
    assert_eq!(fault(nan), "gave sentence 0 of completion 0 the reward NaN; it must be finite");
    assert_eq!(fault(two), "returned 2 outcomes for the 1 sentences of completion 0");
    assert!(fault(forged).starts_with(UNREADABLE));
    assert!(fault("unreachable").starts_with("stopped with a trap: "));
    assert_eq!(
        fault("(loop (br 0)) unreachable"),
        "ran longer than 200 ms in one call (limits.call_ms)"
    );
}

//! Return values of a rule: numbers, texts, lists, and bytes that are none of these.

use std::time::Instant;

use corver_rules::{Limits, RuleError};

use crate::guest::{Guest, SCORE_ZERO};
use crate::{error_of, fault_in, fault_of, judge, judge_text, load, score_fault};

/// Start of the fault if a returned value does not follow the calling convention.
pub(crate) const UNREADABLE: &str =
    "returned a value that cannot be read, with at most 134217728 bytes (limits.output_bytes): ";

#[test]
fn non_finite_rewards_are_rejected() {
    for (reward, shown) in [("nan", "NaN"), ("inf", "inf"), ("-inf", "-inf")] {
        let score = format!("(f32.store (i32.const 264) (f32.const {reward})) {SCORE_ZERO}");
        let fault = score_fault(score.leak(), &Limits::default());
        let expected =
            format!("gave sentence 0 of completion 0 the reward {shown}; it must be finite");
        assert_eq!(fault, expected);
    }
}

#[test]
fn outcome_count_must_match_sentences() {
    let none = "(i32.store (i32.const 324) (i32.const 0)) i32.const 336";
    assert_eq!(
        score_fault(none, &Limits::default()),
        "returned 0 outcomes for the 1 sentences of completion 0"
    );
    let many = "(i32.store (i32.const 324) (i32.const 9)) i32.const 336";
    assert_eq!(
        score_fault(many, &Limits::default()),
        "returned 9 outcomes for the 1 sentences of completion 0"
    );
}

#[test]
fn answer_count_must_match_completions() {
    let none = "(i32.store (i32.const 340) (i32.const 0)) i32.const 336";
    assert_eq!(
        score_fault(none, &Limits::default()),
        "returned outcomes of 0 completions; there are 1"
    );
    // Two lists at 336: the one at 320, and what the zeros after it make.
    let many = "(i32.store (i32.const 340) (i32.const 2)) i32.const 336";
    assert_eq!(
        score_fault(many, &Limits::default()),
        "returned outcomes of 2 completions; there are 1"
    );
}

/// `abstain` with a note of so many bytes from address 1,000 on.
fn note(bytes: u32) -> &'static str {
    format!(
        "(i32.store8 (i32.const 256) (i32.const 1)) (i32.store8 (i32.const 264) (i32.const 1))
         (i32.store (i32.const 268) (i32.const 1000)) (i32.store (i32.const 272) (i32.const {bytes})) i32.const 336"
    )
    .leak()
}

#[test]
fn note_and_name_lengths_are_limited() {
    let limits = Limits { text_bytes: 5_000, ..Limits::default() };
    assert_eq!(
        score_fault(note(5_001), &limits),
        "gave a note of 5001 bytes; at most 5000 are allowed (limits.text_bytes)"
    );
    let name = Guest {
        describe: "(i32.store (i32.const 64) (i32.const 1000)) (i32.store (i32.const 68) (i32.const 5001)) i32.const 64",
        ..Guest::default()
    };
    assert_eq!(
        fault_of(&name, &limits),
        "gave a name of 5001 bytes; at most 5000 are allowed (limits.text_bytes)"
    );
}

#[test]
fn answer_size_is_limited() {
    let limits = Limits { output_bytes: 10_000, ..Limits::default() };
    let fault = score_fault(note(20_000), &limits);
    assert!(
        fault.starts_with("returned a value that cannot be read, with at most 10000 bytes"),
        "{fault}"
    );

    // 6,000 queries of one word, which is the same text of 60,000 bytes: 240 KB that would become
    // 360 MB.
    let folded = "(local $at i32)
        (i32.store (i32.const 400) (i32.const 1000)) (i32.store (i32.const 404) (i32.const 60000))
        (i32.store (i32.const 408) (i32.const 400)) (i32.store (i32.const 412) (i32.const 1))
        (drop (memory.grow (i32.const 4)))
        (loop
            (i32.store offset=100008 (local.get $at) (i32.const 408))
            (i32.store offset=100012 (local.get $at) (i32.const 1))
            (br_if 0 (i32.lt_u (local.tee $at (i32.add (local.get $at) (i32.const 40))) (i32.const 240000))))
        (i32.store8 (i32.const 256) (i32.const 2))
        (i32.store (i32.const 264) (i32.const 100000)) (i32.store (i32.const 268) (i32.const 6000))
        i32.const 336";
    let fault = score_fault(folded, &Limits::default());
    assert!(fault.starts_with(UNREADABLE), "{fault}");
}

#[test]
fn forged_answers_are_refused() {
    let text_beyond_memory = note(1 << 30);
    let text_around_the_end = note(u32::MAX);
    let list_beyond_memory = "(i32.store (i32.const 324) (i32.const 0x7fffffff)) i32.const 336";
    let lists_beyond_memory = "(i32.store (i32.const 340) (i32.const 0x7fffffff)) i32.const 336";
    let no_such_case = "(i32.store8 (i32.const 256) (i32.const 7)) i32.const 336";
    let no_such_flag = "(i32.store8 (i32.const 288) (i32.const 9)) i32.const 336";
    let no_such_address = "i32.const -8";
    let misaligned = "i32.const 337";
    let not_utf8 = "(i32.store8 (i32.const 0) (i32.const 255)) (i32.store8 (i32.const 256) (i32.const 1))
        (i32.store8 (i32.const 264) (i32.const 1)) (i32.store (i32.const 272) (i32.const 4)) i32.const 336";
    for score in [
        text_beyond_memory,
        text_around_the_end,
        list_beyond_memory,
        lists_beyond_memory,
        no_such_case,
        no_such_flag,
        no_such_address,
        misaligned,
        not_utf8,
    ] {
        let fault = score_fault(score, &Limits::default());
        assert!(fault.starts_with(UNREADABLE), "{score}: {fault}");
    }
}

#[test]
fn verdict_triplet_index_must_exist() {
    let score = "(i32.store8 (i32.const 288) (i32.const 1)) i32.const 336";
    let fault = "names triplet 0 in sentence 0 of completion 0, which has 0";
    assert_eq!(score_fault(score, &Limits::default()), fault);
}

#[test]
fn token_rewards_must_fit_reward_and_sentence() {
    // “Well.” has five characters. The verdict's credit is at 308: its flag, its case, the list at 316. A token reward is at 2,000.
    let credited = |character: u32, share: f32| {
        let score = format!(
            "(i32.store8 (i32.const 308) (i32.const 1)) (i32.store (i32.const 2000) (i32.const {character}))
             (f32.store (i32.const 2004) (f32.const {share}))
             (i32.store (i32.const 316) (i32.const 2000)) (i32.store (i32.const 320) (i32.const 1))
             (i32.store (i32.const 3000) (i32.const 256)) (i32.store (i32.const 3004) (i32.const 1))
             (i32.store (i32.const 336) (i32.const 3000)) i32.const 336"
        );
        score_fault(score.leak(), &Limits::default())
    };
    assert_eq!(credited(5, 0.0), "credits character 5 of sentence 0 of completion 0, which has 5");
    assert_eq!(
        credited(4, 0.5),
        "gave sentence 0 of completion 0 the reward 0, and token rewards that add up to 0.5"
    );
}

#[test]
fn invalid_rule_names_are_rejected() {
    // Run folders and metrics are named after rules.
    for name in ["../../etc/passwd", "judge", "Two Words"] {
        let extra = format!(r#"(data (i32.const 600) "{name}")"#).leak();
        let describe = format!(
            "(i32.store (i32.const 64) (i32.const 600)) (i32.store (i32.const 68) (i32.const {})) i32.const 64",
            name.len()
        );
        let guest = Guest { extra, describe: describe.leak(), ..Guest::default() };
        let fault = fault_of(&guest, &Limits::default());
        assert!(fault.starts_with(&format!("has the name {name:?}; a rule's name is")), "{fault}");
    }
}

#[test]
fn settings_error_carries_rule_message() {
    // `error` with the text at 32.
    let configure =
        "(i32.store8 (i32.const 128) (i32.const 1)) (i32.store (i32.const 132) (i32.const 32))
        (i32.store (i32.const 136) (i32.const 21)) i32.const 128";
    let error = error_of(&Guest { configure, ..Guest::default() }.module(), &Limits::default());
    assert!(matches!(error, RuleError::InvalidSettings { .. }));
    assert_eq!(
        error.to_string(),
        "plugin hostile 1.2.3 refuses its settings: panicked at rule.rs:7"
    );
}

/// The guest's own memory takes its input, so the host's way in is bounded as well.
#[test]
fn input_exceeding_guest_memory_faults_rule() {
    let rule = load(&Guest::default().module(), Limits::default()).unwrap();
    // This guest never grows its 256 KiB.
    let long = judge_text(&rule, &"x".repeat(1 << 20));
    let fault = fault_in(long.expect_err("it does not fit"));
    assert!(fault.starts_with(UNREADABLE), "{fault}");
}

/// The credit assignment is outside the time limit of the rule.
#[test]
fn million_token_rewards_for_one_sentence_are_refused() {
    // The list of token rewards is at 65,536, before the host's input.
    let score = "(i32.store8 (i32.const 308) (i32.const 1))
         (i32.store (i32.const 316) (i32.const 65536)) (i32.store (i32.const 320) (i32.const 1000000))
         (i32.store (i32.const 3000) (i32.const 256)) (i32.store (i32.const 3004) (i32.const 1))
         (i32.store (i32.const 336) (i32.const 3000)) i32.const 336";
    let guest = Guest { score, pages: 200, ..Guest::default() };
    let start = Instant::now();
    let fault = fault_of(&guest, &Limits::default());
    let seconds = start.elapsed().as_secs_f64();
    assert_eq!(
        fault,
        "gave 1000000 token rewards for sentence 0 of completion 0, which has 5 characters"
    );
    eprintln!(
        "\n| work outside a rule's limits | a million token rewards of a sentence | at most one per character | {seconds:.1} s | | refused |"
    );
}

/// An index of a relaxed swizzle beyond 15 gives 0 where the result is specified; x86 processors take
/// its lowest bits.
#[test]
fn relaxed_simd_has_the_specified_result() {
    let score = "(f32.store (i32.const 264) (f32.convert_i32_u (i8x16.extract_lane_u 0
             (i8x16.relaxed_swizzle (i8x16.splat (i32.const 7)) (i8x16.splat (i32.const 17))))))
         i32.const 336";
    let rule = load(&Guest::scoring(score).module(), Limits::default()).unwrap();
    assert_eq!(judge(&rule).unwrap().reward, 0.0);
    eprintln!(
        "\n| determinism promised, not set | a relaxed swizzle with an index of 17 | one result of relaxed SIMD | | | the specified 0 |"
    );
}

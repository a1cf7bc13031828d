//! Time, memory, tables, stack and traps.

use corver_rules::{Compiler, Limits, RuleError, Sandbox};

use crate::answers::UNREADABLE;
use crate::guest::{Guest, RECURSION, SCORE_ZERO};
use crate::{error_of, fault_in, fault_of, judge, load, score_fault};

const ENDLESS: &str = "(loop (br 0)) unreachable";

/// The fault of a rule that runs into the time limit of [`hurried`].
const LATE: &str = "ran longer than 200 ms in one call (limits.call_ms)";

fn memory(requested: usize, limit: usize) -> String {
    format!(
        "requested {requested} more bytes of memory; at most {limit} are allowed in total \
         (limits.memory_bytes)"
    )
}

fn table(requested: usize) -> String {
    format!(
        "requested {requested} more table elements; at most 100000 are allowed in total \
         (limits.table_elements)"
    )
}

fn stack(limit: usize) -> String {
    format!("used up its stack of {limit} bytes (limits.stack_bytes)")
}

fn hurried() -> Limits {
    Limits { call_ms: 200, ..Limits::default() }
}

#[test]
fn endless_loops_stop_in_every_export() {
    assert_eq!(score_fault(ENDLESS, &hurried()), LATE);
    for guest in [
        Guest { describe: ENDLESS, ..Guest::default() },
        Guest { configure: ENDLESS, ..Guest::default() },
        Guest { realloc: ENDLESS, ..Guest::default() },
        Guest { after_score: ENDLESS, ..Guest::default() },
        Guest { extra: "(func $start (loop (br 0))) (start $start)", ..Guest::default() },
    ] {
        assert_eq!(fault_of(&guest, &hurried()), LATE);
    }
}

/// Large files are compiled with other settings.
#[test]
fn limits_apply_to_large_rules() {
    let (limits, bomb) =
        (hurried(), "(loop (drop (memory.grow (i32.const 256))) (br 0)) unreachable");
    for (score, fault) in [
        (ENDLESS, LATE.to_owned()),
        (RECURSION, stack(limits.stack_bytes)),
        (bomb, memory(16 << 20, limits.memory_bytes)),
    ] {
        assert_eq!(fault_in(error_of(&Guest::scoring(score).large_module(), &limits)), fault);
    }
}

#[test]
fn slow_loops_end_at_the_time_limit() {
    let days = "(local $n i64) (loop (br_if 0 (i64.ne (i64.const 0x10000000000000)
        (local.tee $n (i64.add (local.get $n) (i64.const 1)))))) i32.const 336";
    assert_eq!(score_fault(days, &hurried()), LATE);
    // Reports leave the sandbox: that must not restart the time.
    let chatty = "(loop (call $report (i32.const 32) (i32.const 21)) (br 0)) unreachable";
    assert_eq!(score_fault(chatty, &hurried()), LATE);
}

#[test]
fn grown_and_declared_memory_is_limited() {
    let limits = Limits { memory_bytes: 32 << 20, ..Limits::default() };
    let bomb = "(loop (drop (memory.grow (i32.const 256))) (br 0)) unreachable";
    assert_eq!(score_fault(bomb, &limits), memory(16 << 20, 32 << 20));
    let at_once = "(drop (memory.grow (i32.const 60000))) i32.const 336";
    assert_eq!(score_fault(at_once, &limits), memory(60_000 << 16, 32 << 20));
    let for_the_hosts_input = Guest { realloc: bomb, ..Guest::default() };
    assert_eq!(fault_of(&for_the_hosts_input, &limits), memory(16 << 20, 32 << 20));
    for pages in [1024, 65_536] {
        let declared = Guest { pages, ..Guest::default() };
        assert_eq!(fault_of(&declared, &limits), memory((pages as usize) << 16, 32 << 20));
    }
}

#[test]
fn grown_and_declared_tables_are_limited() {
    let grown = Guest {
        extra: "(table $t 1 funcref)",
        score: "(drop (table.grow $t (ref.null func) (i32.const 1000000))) i32.const 336",
        ..Guest::default()
    };
    assert_eq!(fault_of(&grown, &Limits::default()), table(1_000_000));
    let declared = Guest { extra: "(table 9000000 funcref)", ..Guest::default() };
    assert_eq!(fault_of(&declared, &Limits::default()), table(9_000_000));
    let many = Guest { extra: "(table 60000 funcref) (table 60000 funcref)", ..Guest::default() };
    assert_eq!(fault_of(&many, &Limits::default()), table(60_000));
}

#[test]
fn endless_recursion_ends_at_the_stack_limit() {
    for stack_bytes in [64 << 10, 512 << 10] {
        let limits = Limits { stack_bytes, ..Limits::default() };
        assert_eq!(score_fault(RECURSION, &limits), stack(stack_bytes));
    }
}

#[test]
fn oversized_stack_limit_is_rejected() {
    let limits = Limits { stack_bytes: 16 << 20, ..Limits::default() };
    let error = Sandbox::new(limits, Compiler::InProcess).unwrap_err();
    assert!(matches!(error, RuleError::LimitExceeded(_)), "{error:?}");
    assert_eq!(error.to_string(), "limits.stack_bytes is 16777216; at most 1048576 are allowed");
}

#[test]
fn trap_kind_is_named_in_error() {
    for (score, trap) in [
        ("unreachable", "unreachable"),
        ("(i32.div_u (i32.const 1) (i32.const 0))", "divide by zero"),
        ("(i32.div_s (i32.const 0x80000000) (i32.const -1))", "integer overflow"),
        ("(i32.trunc_f32_s (f32.const nan))", "invalid conversion"),
        ("(i32.load (i32.const -4))", "out of bounds memory access"),
        (
            "(memory.fill (i32.const 0) (i32.const 0) (i32.const -1)) i32.const 336",
            "out of bounds memory access",
        ),
    ] {
        let fault = score_fault(score, &Limits::default());
        assert!(
            fault.starts_with("stopped with a trap: ") && fault.to_string().contains(trap),
            "{score}: {fault}"
        );
    }
    let guest = Guest {
        extra: "(type $nothing (func)) (table $t 1 funcref)",
        score: "(call_indirect $t (type $nothing) (i32.const 0)) i32.const 336",
        ..Guest::default()
    };
    let fault = fault_of(&guest, &Limits::default());
    assert!(
        fault.starts_with("stopped with a trap: ")
            && fault.to_string().contains("uninitialized element"),
        "{fault}"
    );
}

#[test]
fn rule_cannot_report_during_realloc_or_cleanup() {
    let (call, answer) = ("(call $report (i32.const 32) (i32.const 21))", "(i32.const 65536)");
    let in_realloc = Guest { realloc: format!("{call} {answer}").leak(), ..Guest::default() };
    let after_score = Guest { after_score: call, ..Guest::default() };
    for guest in [in_realloc, after_score] {
        let fault = fault_of(&guest, &Limits::default());
        assert!(
            fault.starts_with("stopped with a trap: ")
                && fault.to_string().contains("cannot leave"),
            "{fault}"
        );
    }
}

#[test]
fn trap_error_includes_reported_message() {
    let score = "(call $report (i32.const 32) (i32.const 21)) unreachable";
    let error = error_of(&Guest::scoring(score).module(), &Limits::default()).to_string();
    assert!(error.starts_with("plugin hostile 1.2.3 stopped with a trap"), "{error}");
    assert!(error.ends_with("it reported: panicked at rule.rs:7"), "{error}");
}

#[test]
fn reports_are_bounded_in_number_and_size() {
    let score = "(local $n i32) (loop
        (call $report (i32.const 32) (i32.const 21))
        (br_if 0 (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 100000)))) unreachable";
    let limits = Limits { reports: 2, text_bytes: 8, ..Limits::default() };
    let error = error_of(&Guest::scoring(score).module(), &limits).to_string();
    assert!(error.contains(" stopped with a trap: "), "{error}");
    assert!(error.ends_with("; it reported: panicked | panicked"), "{error}");
}

#[test]
fn forged_input_addresses_are_rejected() {
    for realloc in ["i32.const -16", "i32.const 65537", "i32.const 262140"] {
        let fault = fault_of(&Guest { realloc, ..Guest::default() }, &Limits::default());
        assert!(fault.starts_with(UNREADABLE), "{realloc}: {fault}");
    }
    // One address for everything: the rule overwrites its own input, and nothing else.
    let overlaid = Guest { realloc: "i32.const 65536", score: SCORE_ZERO, ..Guest::default() };
    let rule = load(&overlaid.module(), Limits::default()).unwrap();
    assert_eq!(judge(&rule).unwrap().reward, Some(0.0));
}

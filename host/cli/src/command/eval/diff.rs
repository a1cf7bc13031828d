//! `corver-host eval diff`: compares two policies on the same questions.

use std::path::Path;

use anyhow::Result;
use corver_eval::diff::Difference;
use corver_eval::{Diff, Grades, Refusals, diff, read_answers};

use crate::output;

/// Random seed of the bootstrap.
const SEED: u64 = 42;

pub fn run(first: &Path, second: &Path, json: bool) -> Result<()> {
    let diff = diff(&read_answers(first)?, &read_answers(second)?, SEED)?;
    if json {
        return output::json(&diff);
    }
    show(&diff);
    Ok(())
}

fn show(diff: &Diff) {
    let change = |Difference { value, low, high }: Difference| {
        let [value, low, high] = [value, low, high].map(|share| format!("{:+.1}", 100.0 * share));
        format!("{value} ({low} to {high})")
    };
    let row = |name: &str, of: fn(&Grades) -> f64, difference: Difference| {
        let [first, second] = diff.grades.map(|grades| output::percent(of(&grades)));
        [name.to_owned(), first, second, change(difference)]
    };
    output::table(
        [
            &format!("{} questions", diff.grades[0].total()),
            "first",
            "second",
            "second − first, points (95 %)",
        ],
        [
            row("correct", |grades| grades.rate(grades.correct), diff.accuracy),
            row("not attempted", |grades| grades.rate(grades.not_attempted), diff.not_attempted),
            row("F1", Grades::f1, diff.f1),
        ],
    );
    let names = ["correct", "incorrect", "not attempted"];
    output::table(
        ["first ↓ second →", names[0], names[1], names[2]],
        names.iter().zip(diff.moves).map(|(name, [correct, incorrect, not_attempted])| {
            [
                (*name).to_owned(),
                correct.to_string(),
                incorrect.to_string(),
                not_attempted.to_string(),
            ]
        }),
    );
    let Refusals { first, second, attempted, correct, subset_correct } = diff.refusals;
    output::table(
        [
            "first not attempted",
            "second not attempted",
            "attempted by the second alone",
            "of these correct",
        ],
        [[
            output::percent(first),
            output::percent(second),
            attempted.to_string(),
            subset_correct.map_or("–".to_owned(), |share| {
                format!("{correct} ({})", output::percent(share))
            }),
        ]],
    );
    if !diff.by_popularity.is_empty() {
        output::table(
            [
                "quarter",
                "popularity",
                "questions",
                "first correct",
                "second correct",
                "second − first, points (95 %)",
            ],
            diff.by_popularity.iter().map(|group| {
                let [of_first, of_second] =
                    group.grades.map(|grades| output::percent(grades.rate(grades.correct)));
                let quarter = group.quarter.map_or("all".to_owned(), |quarter| quarter.to_string());
                let (range, number) = (
                    format!("{} to {}", group.from, group.to),
                    group.grades[0].total().to_string(),
                );
                [quarter, range, number, of_first, of_second, change(group.accuracy)]
            }),
        );
    }
    let mcnemar = diff.mcnemar;
    let p =
        if mcnemar.p < 1e-3 { format!("{:.1e}", mcnemar.p) } else { format!("{:.3}", mcnemar.p) };
    output::line(format_args!(
        "{} right in the first alone, {} in the second alone: p = {p} (McNemar, exact, two-sided)",
        mcnemar.only_first, mcnemar.only_second
    ));
}

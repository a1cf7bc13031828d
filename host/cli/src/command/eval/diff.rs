//! `corver-host eval diff`: compares two policies on the same questions.

use std::path::Path;

use anyhow::Result;
use corver_eval::diff::{Difference, PopularityGroup};
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
    let row = |name: &str, of: fn(&Grades) -> f64, difference: Difference| {
        let [first, second] = diff.grades.map(|grades| output::percent(of(&grades)));
        [name.to_owned(), first, second, change_text(difference)]
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
        show_popularity(&diff.by_popularity);
    }
    let mcnemar = diff.mcnemar;
    output::line(format_args!(
        "{} right in the first alone, {} in the second alone: {} (McNemar, exact, two-sided)",
        mcnemar.only_first,
        mcnemar.only_second,
        p_text(mcnemar.p)
    ));
}

fn show_popularity(groups: &[PopularityGroup]) {
    let mut rows = Vec::new();
    for PopularityGroup { quarter, from, to, grades, accuracy } in groups {
        let [of_first, of_second] =
            grades.map(|grades| output::percent(grades.rate(grades.correct)));
        rows.push([
            quarter.map_or("all".to_owned(), |quarter| quarter.to_string()),
            format!("{from} to {to}"),
            grades[0].total().to_string(),
            of_first,
            of_second,
            change_text(*accuracy),
        ]);
    }
    output::table(
        [
            "quarter",
            "popularity",
            "questions",
            "first correct",
            "second correct",
            "second − first, points (95 %)",
        ],
        rows,
    );
}

/// Formats a difference of shares in points, with its interval.
fn change_text(Difference { value, low, high }: Difference) -> String {
    let [value, low, high] = [value, low, high].map(|share| format!("{:+.1}", 100.0 * share));
    format!("{value} ({low} to {high})")
}

/// Formats a p-value. The smallest ones are 0 in floating point.
fn p_text(p: f64) -> String {
    match p {
        p if p < 1e-99 => "p < 1e-99".to_owned(),
        p if p < 1e-3 => format!("p = {p:.1e}"),
        p => format!("p = {p:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smallest_p_value_is_not_called_zero() {
        assert_eq!(p_text(0.0), "p < 1e-99");
        assert_eq!(p_text(2e-99), "p = 2.0e-99");
        assert_eq!([0.000_12, 0.001, 1.0].map(p_text), ["p = 1.2e-4", "p = 0.001", "p = 1.000"]);
    }
}

//! The top of a report: reward, length and results of a run.

use corver_analysis::compare::COSTS;
use corver_eval::{Evaluation, Figure, FigureUnit, OF_AN_ANSWER, View, figures};
use corver_train::RunSummary;
use maud::{Markup, html};

use crate::hacks;
use crate::number;
use crate::page::table;
use crate::reported::Reported;
use crate::run::LoadedRun;

/// Returns the name of a run, a sentence about what happened, and its reward.
pub(crate) fn headline(reported: &Reported) -> Markup {
    let run = &reported.run;
    html! {
        h1 { "Training run " (run.name) }
        p.outcome { (outcome(reported)) }
        p.lead { (reward_parts(run)) }
        (state(run))
    }
}

/// Returns the table of figures before and after training.
pub(crate) fn results(run: &LoadedRun) -> Markup {
    let questions =
        run.before.as_ref().or(run.after.as_ref()).map(|evaluation| evaluation.grades.total());
    html! {
        @match questions {
            None => p.soft { "The run has no evaluation questions." },
            Some(questions) => {
                h2 { "Before and after" }
                (before_and_after(run))
                p.note { (questions) " held-out questions, answered greedily; " (OF_AN_ANSWER) }
            }
        }
    }
}

/// Describes in words what a run did: accuracy, return and hacks.
fn outcome(reported: &Reported) -> String {
    let run = &reported.run;
    let mut sentences = Vec::new();
    match (&run.before, &run.after) {
        (Some(before), Some(after)) => sentences.push(format!(
            "After {} steps, {} of {} held-out questions are answered correctly: {}.",
            run.metrics.len(),
            number::percent(after.accuracy),
            after.grades.total(),
            compared(after.accuracy - before.accuracy)
        )),
        (Some(before), None) => sentences.push(format!(
            "Before training, {} of {} held-out questions were answered correctly.",
            number::percent(before.accuracy),
            before.grades.total()
        )),
        _ => {}
    }
    if let Some((first, last)) = hacks::ends(&hacks::values(run, "reward")) {
        let [from, to] = [first, last].map(number::with_sign);
        sentences.push(if from == to {
            format!("The mean return stayed at {from}.")
        } else {
            let verb = if last > first { "rose" } else { "fell" };
            format!("The mean return {verb} from {from} to {to}.")
        });
    }
    let flagged = reported.flagged();
    sentences.push(if reported.checks.is_empty() {
        "There are too few steps to see a reward hack.".to_owned()
    } else if flagged.is_empty() {
        "No known reward hack shows.".to_owned()
    } else {
        format!("Signs of a reward hack: {}.", flagged.join(", "))
    });
    sentences.join(" ")
}

/// Describes a difference of two accuracies.
fn compared(difference: f64) -> String {
    if difference == 0.0 {
        return "as many as before".to_owned();
    }
    let direction = if difference > 0.0 { "more" } else { "fewer" };
    let points = 100.0 * difference.abs();
    if points < 0.05 {
        format!("less than 0.1 points {direction} than before")
    } else {
        format!("{points:.1} points {direction} than before")
    }
}

/// Returns rule, judge and format, each with its weight.
fn reward_parts(run: &LoadedRun) -> String {
    let reward = &run.settings.reward;
    let lambdas = [reward.lambda_corver, reward.lambda_judge, reward.lambda_format];
    format!("{}, seed {}", run.rewards().with_weights(lambdas), run.settings.run.seed)
}

fn state(run: &LoadedRun) -> Markup {
    let done = run.metrics.len();
    let all = run.settings.run.steps;
    html! {
        @match &run.summary {
            Some(summary) => p.soft {
                (summary.steps) " steps of "
                (format!("{:.2}", summary.seconds_per_step)) " s, of which "
                (format!("{:.0}", 1000.0 * summary.reward_seconds_per_step)) " ms are the reward; "
                (format!("{:.0}", summary.seconds_total)) " s in all"
                (requests(summary))
            },
            None => p.warn { "Not finished: " (done) " of " (all) " steps" },
        }
    }
}

/// Describes the requests of a step by kind, and their cost.
fn requests(summary: &RunSummary) -> String {
    let mut parts = Vec::new();
    for cost in COSTS {
        match (cost.get)(summary).filter(|value| *value > 0.0) {
            Some(value) if cost.unit == FigureUnit::Count => {
                parts.push(format!("{value:.0} {}", cost.meaning));
            }
            Some(value) if cost.unit == FigureUnit::Money => {
                parts.push(format!("{}: {}", cost.title, number::short(value)));
            }
            _ => {}
        }
    }
    if parts.is_empty() { String::new() } else { format!("; per step: {}", parts.join(", ")) }
}

fn before_and_after(run: &LoadedRun) -> Markup {
    let evaluations: Vec<&Evaluation> = [&run.before, &run.after].into_iter().flatten().collect();
    let mut rows = Vec::new();
    for figure in figures(View::Training, &evaluations) {
        let [before, after] = [&run.before, &run.after].map(Option::as_ref);
        let difference = before
            .and_then(figure.get)
            .zip(after.and_then(figure.get))
            .map_or_else(|| "–".to_owned(), |(before, after)| change(after - before, figure.unit));
        rows.push(vec![
            figure.title.to_owned(),
            written(figure, before),
            written(figure, after),
            difference,
        ]);
    }
    table(&["", "before", "after", "change"], &rows)
}

/// Formats a value with a non-breaking space before its unit.
fn written(figure: &Figure<Evaluation>, evaluation: Option<&Evaluation>) -> String {
    figure.written(evaluation).replace(' ', "\u{a0}")
}

/// Formats a difference in the figure's unit, with its sign.
fn change(difference: f64, unit: FigureUnit) -> String {
    let size = unit.of_change().written(difference.abs()).replace(' ', "\u{a0}");
    let is_none = size.chars().all(|c| !matches!(c, '1'..='9'));
    match difference {
        _ if is_none => size,
        difference if difference < 0.0 => format!("−{size}"),
        _ => format!("+{size}"),
    }
}

/// Returns the table of several runs, one per row.
pub(crate) fn side_by_side(runs: &[Reported]) -> Markup {
    let evaluations: Vec<&Evaluation> = runs
        .iter()
        .flat_map(|reported| [&reported.run.before, &reported.run.after])
        .flatten()
        .collect();
    let shown = figures(View::Training, &evaluations);
    let mut header = vec!["run", "steps", "s/step"];
    header.extend(shown.iter().map(|figure| figure.title));
    header.push("hacks");
    let row = |reported: &Reported| {
        let steps = match &reported.run.summary {
            Some(summary) => summary.steps.to_string(),
            None => {
                format!("{} of {}", reported.run.metrics.len(), reported.run.settings.run.steps)
            }
        };
        let seconds = reported.run.mean("step_time");
        let flagged = reported.flagged();
        let mut cells = vec![reported.name.clone(), steps, format!("{seconds:.2}")];
        let LoadedRun { before, after, .. } = &reported.run;
        cells.extend(shown.iter().map(|figure| {
            format!("{} → {}", written(figure, before.as_ref()), written(figure, after.as_ref()))
        }));
        cells.push(match (reported.checks.is_empty(), flagged.is_empty()) {
            (true, _) => "–".to_owned(),
            (false, true) => "none".to_owned(),
            (false, false) => flagged.join(", "),
        });
        cells
    };
    html! {
        h1 { (runs.len()) " training runs" }
        @for reported in runs {
            p.outcome { b { (reported.name) } ": " (outcome(reported)) }
            p.lead { (reward_parts(&reported.run)) }
        }
        h2 { "Before → after" }
        (table(&header, &runs.iter().map(row).collect::<Vec<_>>()))
        p.note { "held-out questions, answered greedily; " (OF_AN_ANSWER) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_difference_is_not_called_none() {
        assert_eq!(compared(0.0), "as many as before");
        assert_eq!(compared(0.0004), "less than 0.1 points more than before");
        assert_eq!(compared(-0.0004), "less than 0.1 points fewer than before");
        assert_eq!(compared(-0.0006), "0.1 points fewer than before");
        assert_eq!(compared(0.125), "12.5 points more than before");
    }
}

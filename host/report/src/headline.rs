//! The top of a report: what a run was, and what it changed.

use corver_study::eval::Evaluation;
use corver_study::run::{Asked, RewardNames};
use maud::{Markup, html};

use crate::number;
use crate::page::table;
use crate::reported::Reported;
use crate::run::Run;

/// A figure of an evaluation, and how it is written.
struct Figure {
    name: &'static str,
    of: fn(&Evaluation) -> Option<f64>,
    written: fn(f64) -> String,
}

const FIGURES: [Figure; 8] = [
    Figure { name: "accuracy", of: |one| Some(one.accuracy), written: number::percent },
    Figure { name: "supported sentences", of: |one| one.supported_rate, written: number::percent },
    Figure { name: "true sentences", of: |one| one.true_sentences, written: two_decimals },
    Figure { name: "false sentences", of: |one| one.false_sentences, written: two_decimals },
    Figure { name: "refusals", of: |one| Some(one.refusal_rate), written: number::percent },
    Figure { name: "cut off", of: |one| Some(one.cut_off_rate), written: number::percent },
    Figure { name: "no answer", of: |one| Some(one.unformatted_rate), written: number::percent },
    Figure { name: "mean length, tokens", of: |one| Some(one.mean_length), written: one_decimal },
];

fn two_decimals(value: f64) -> String {
    format!("{value:.2}")
}

fn one_decimal(value: f64) -> String {
    format!("{value:.1}")
}

/// Name, what paid it, and the table of before and after.
pub(crate) fn headline(run: &Run) -> Markup {
    let questions =
        run.before.as_ref().or(run.after.as_ref()).map(|evaluation| evaluation.grades.total());
    html! {
        h1 { (run.name) }
        p.lead { (paid_by(run)) }
        (state(run))
        @match questions {
            None => p.soft { "No questions were set aside for an evaluation." },
            Some(questions) => {
                h2 { "Before and after" }
                (before_and_after(run))
                p.note { (questions) " held-out questions, answered greedily; sentences and tokens are those of an answer" }
            }
        }
    }
}

/// Rule, judge and format, each with its weight.
fn paid_by(run: &Run) -> String {
    let RewardNames { rule, weights, judge, format } = run.rewards();
    let reward = &run.settings.reward;
    let weights: Vec<String> =
        weights.iter().map(|weight| (weight * reward.lambda_corver).to_string()).collect();
    format!(
        "rule {rule} ({}), judge {judge} ({}), format {format} ({}), seed {}",
        weights.join(", "),
        reward.lambda_judge,
        reward.lambda_format,
        run.settings.run.seed
    )
}

fn state(run: &Run) -> Markup {
    let (done, all) = (run.metrics.len(), run.settings.run.steps);
    html! {
        @match &run.summary {
            Some(summary) => p.soft {
                (summary.steps) " steps of " (format!("{:.2}", summary.seconds_per_step)) " s, of which "
                (format!("{:.0}", 1000.0 * summary.reward_seconds_per_step)) " ms are the reward; "
                (format!("{:.0}", summary.seconds_total)) " s in all"
                @if let Some(asked) = &summary.asked_per_step { (asks(asked, summary.cost_per_step)) }
            },
            None => p.warn { "Not finished: " (done) " of " (all) " steps" },
        }
    }
}

/// What a step asks, of every kind that it asks at all.
fn asks(asked: &Asked, cost: Option<f64>) -> String {
    let Asked { count, nli, chat, passages, prompt_tokens, completion_tokens } = asked;
    let kinds = [
        (*count, "counts"),
        (*nli, "pairs of texts for NLI"),
        (*chat, "chats"),
        (prompt_tokens + completion_tokens, "tokens of chats"),
        (*passages, "searches for passages"),
    ];
    let asked = kinds
        .iter()
        .filter(|(number, _)| *number > 0.0)
        .map(|(number, kind)| format!("{number:.0} {kind}"));
    let money =
        cost.filter(|cost| *cost > 0.0).map(|cost| format!("money: {}", number::short(cost)));
    let parts: Vec<String> = asked.chain(money).collect();
    if parts.is_empty() { String::new() } else { format!("; a step asks: {}", parts.join(", ")) }
}

fn before_and_after(run: &Run) -> Markup {
    let row = |figure: &Figure| {
        let value = |evaluation: &Option<Evaluation>| evaluation.as_ref().and_then(figure.of);
        let (before, after) = (value(&run.before), value(&run.after));
        before.or(after)?;
        let written = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), figure.written);
        let change = before
            .zip(after)
            .map_or_else(|| "–".to_owned(), |(before, after)| change(after - before, figure));
        Some(vec![figure.name.to_owned(), written(before), written(after), change])
    };
    table(&["", "before", "after", "change"], &FIGURES.iter().filter_map(row).collect::<Vec<_>>())
}

/// The difference in the figure's own unit, with its sign.
fn change(difference: f64, figure: &Figure) -> String {
    let size = (figure.written)(difference.abs());
    let is_none = size.chars().all(|c| !matches!(c, '1'..='9'));
    match difference {
        _ if is_none => size,
        difference if difference < 0.0 => format!("−{size}"),
        _ => format!("+{size}"),
    }
}

/// Several runs, one in a row.
pub(crate) fn side_by_side(runs: &[Reported]) -> Markup {
    let shown: Vec<&Figure> = FIGURES
        .iter()
        .filter(|figure| {
            runs.iter().any(|reported| {
                [&reported.run.before, &reported.run.after]
                    .into_iter()
                    .flatten()
                    .any(|one| (figure.of)(one).is_some())
            })
        })
        .collect();
    let header: Vec<&str> = ["run", "steps", "s/step"]
        .into_iter()
        .chain(shown.iter().map(|figure| figure.name))
        .chain(["hacks"])
        .collect();
    let cell = |run: &Run, figure: &Figure| {
        let value = |evaluation: &Option<Evaluation>| {
            evaluation.as_ref().and_then(figure.of).map_or_else(|| "–".to_owned(), figure.written)
        };
        format!("{} → {}", value(&run.before), value(&run.after))
    };
    let row = |reported: &Reported| {
        let steps = match &reported.run.summary {
            Some(summary) => summary.steps.to_string(),
            None => {
                format!("{} of {}", reported.run.metrics.len(), reported.run.settings.run.steps)
            }
        };
        let seconds = reported.run.mean("step_time");
        let flagged: Vec<&str> = reported
            .checks
            .iter()
            .filter(|check| check.flagged)
            .map(|check| check.hack.name)
            .collect();
        let mut cells = vec![reported.name.clone(), steps, format!("{seconds:.2}")];
        cells.extend(shown.iter().map(|figure| cell(&reported.run, figure)));
        cells.push(if flagged.is_empty() { "–".to_owned() } else { flagged.join(", ") });
        cells
    };
    html! {
        h1 { (runs.len()) " runs" }
        @for reported in runs { p.lead { b { (reported.name) } ": " (paid_by(&reported.run)) } }
        h2 { "Before → after" }
        (table(&header, &runs.iter().map(row).collect::<Vec<_>>()))
        p.note { "held-out questions, answered greedily; sentences and tokens are those of an answer" }
    }
}

//! Learning curves of a report: the metrics that are drawn, with their titles.

use std::collections::BTreeSet;

use corver_train::metrics::{Metric, SHARE};
use maud::{Markup, html};

use crate::chart::{AxisUnit, ChartLabels, Series, lines};
use crate::reported::Reported;
use crate::run::watched_mean;
use crate::tally::StepTally;

/// Curves under one heading.
struct CurveGroup {
    title: &'static str,
    curves: Vec<Curve>,
}

/// A chart of a run, whose lines share a unit. In a report of several runs, each line gets a chart.
struct Curve {
    title: &'static str,
    lines: Vec<CurveLine>,
}

struct CurveLine {
    name: String,
    /// Label and unit of the vertical axis.
    axis: (&'static str, AxisUnit),
    source: CurveSource,
}

enum CurveSource {
    Metric(String),
    /// Reward of the run's own rule, whatever its name.
    Rule,
    Tally(fn(&StepTally) -> Option<f64>),
}

/// Returns the charts of all curves that at least one run has.
#[must_use]
pub fn curves(runs: &[Reported]) -> Markup {
    html! {
        @for CurveGroup { title, curves } in groups(runs) {
            @let charts: Vec<Markup> = curves.iter().flat_map(|curve| curve.charts(runs)).collect();
            @if !charts.is_empty() {
                h3 { (title) }
                div.charts { @for chart in &charts { (chart) } }
            }
        }
    }
}

fn groups(runs: &[Reported]) -> [CurveGroup; 4] {
    let curve = |title, lines| Curve { title, lines };
    let tally = |name: &str, of| CurveLine {
        name: name.into(),
        axis: (SHARE, AxisUnit::Share),
        source: CurveSource::Tally(of),
    };
    [
        CurveGroup {
            title: "Reward",
            curves: vec![
                curve("Return of a completion", vec![metric("return", "reward")]),
                curve("Channels", channels(runs)),
                curve("Rules of weight 0", watched_rules(runs)),
                curve(
                    "Spread of the returns to a question",
                    vec![metric("deviation", "reward_std")],
                ),
                curve(
                    "Questions without spread",
                    vec![metric("questions", "frac_reward_zero_std")],
                ),
            ],
        },
        CurveGroup {
            title: "Completions",
            curves: vec![
                curve("Accuracy, if golds are known", vec![tally("correct", StepTally::accuracy)]),
                curve(
                    "Sentences",
                    vec![
                        metric("supported, of counted", "corver/supported_rate"),
                        metric("counted", "corver/counted_rate"),
                    ],
                ),
                curve(
                    "Length",
                    vec![
                        metric("mean", "completions/mean_length"),
                        metric("longest", "completions/max_length"),
                        metric("shortest", "completions/min_length"),
                    ],
                ),
                curve(
                    "Not answered",
                    vec![
                        tally("refused", |step| Some(step.refusals())),
                        tally("no answer", |step| Some(step.without_answer())),
                        metric("cut off", "completions/clipped_ratio"),
                    ],
                ),
                curve(
                    "Emptiness",
                    vec![
                        tally("repeated words", |step| Some(step.repetition())),
                        tally("empty think", |step| Some(step.empty_thinks())),
                    ],
                ),
            ],
        },
        CurveGroup {
            title: "Policy",
            curves: vec![
                curve("Distance from the reference", vec![metric("KL", "kl")]),
                curve(
                    "Distance of the sampler from the policy",
                    vec![metric("mean", "sampling/sampling_logp_difference/mean")],
                ),
                curve("Entropy", vec![metric("entropy", "entropy")]),
                curve("Loss", vec![metric("loss", "loss")]),
                curve("Gradient before clipping", vec![metric("norm", "grad_norm")]),
                curve("Learning rate", vec![metric("rate", "learning_rate")]),
            ],
        },
        CurveGroup {
            title: "Cost",
            curves: vec![
                curve(
                    "Step",
                    vec![
                        metric("step", "step_time"),
                        metric("rollout", "seconds/rollout"),
                        metric("reward", "seconds/reward"),
                        metric("update", "seconds/update"),
                    ],
                ),
                curve(
                    "Backends",
                    vec![
                        metric("NLI", "backends/nli"),
                        metric("chat", "backends/chat"),
                        metric("passages", "backends/passages"),
                    ],
                ),
                curve(
                    "Chat",
                    vec![
                        metric("to the model", "backends/prompt_tokens"),
                        metric("from it", "backends/completion_tokens"),
                    ],
                ),
            ],
        },
    ]
}

/// Returns the label and the unit of an axis for a metric.
///
/// # Panics
/// Panics if the metric is not declared.
pub(crate) fn axis(metric: &str) -> (&'static str, AxisUnit) {
    let unit = Metric::find(metric).expect("a metric that is declared").unit;
    (unit, if unit == SHARE { AxisUnit::Share } else { AxisUnit::Number })
}

fn metric(name: &str, metric: &str) -> CurveLine {
    CurveLine { name: name.into(), axis: axis(metric), source: CurveSource::Metric(metric.into()) }
}

/// Returns the reward channels: judge and format, then the rules by name, or a single line for each
/// run's own rule if the runs have different rules.
fn channels(runs: &[Reported]) -> Vec<CurveLine> {
    let rules: Vec<BTreeSet<&str>> = runs.iter().map(rules).collect();
    let mut lines: Vec<CurveLine> =
        RESPONSE.iter().map(|name| metric(name, &mean_of(name))).collect();
    match rules.first() {
        Some(first) if rules.iter().all(|rules| rules == first) => {
            lines.extend(first.iter().map(|name| metric(name, &mean_of(name))));
        }
        _ => lines.push(CurveLine {
            name: "rule".into(),
            axis: axis(&mean_of("RULE")),
            source: CurveSource::Rule,
        }),
    }
    lines
}

/// Returns a run's channels without judge and format.
fn rules(reported: &Reported) -> BTreeSet<&str> {
    let names = reported.run.metrics.first().into_iter().flat_map(|line| line.keys());
    names.filter_map(|name| channel(name)).filter(|name| !RESPONSE.contains(name)).collect()
}

/// Returns the rules that some run watches.
fn watched_rules(runs: &[Reported]) -> Vec<CurveLine> {
    let names: BTreeSet<&str> = runs.iter().flat_map(|reported| reported.run.watched()).collect();
    names.into_iter().map(|name| metric(name, &watched_mean(name))).collect()
}

fn mean_of(channel: &str) -> String {
    format!("rewards/{channel}/mean")
}

const RESPONSE: [&str; 2] = ["judge", "format"];

fn channel(metric: &str) -> Option<&str> {
    metric.strip_prefix("rewards/")?.strip_suffix("/mean")
}

impl Curve {
    fn charts(&self, runs: &[Reported]) -> Vec<Markup> {
        let Self { title, lines: all } = self;
        let Some(&CurveLine { axis: (y, unit), .. }) = all.first() else { return Vec::new() };
        if let [reported] = runs {
            let series = all
                .iter()
                .map(|line| Series { name: line.name.clone(), points: line.points(reported) });
            let recorded: Vec<Series> = series.filter(|line| !line.points.is_empty()).collect();
            return chart(title, y, unit, &recorded).into_iter().collect();
        }
        let of_line = |line: &CurveLine| {
            let title =
                if all.len() > 1 { format!("{title}: {}", line.name) } else { (*title).to_owned() };
            // A run without this metric keeps its index, so that every run has one colour.
            let series = runs.iter().map(|reported| Series {
                name: reported.name.clone(),
                points: line.points(reported),
            });
            chart(&title, y, unit, &series.collect::<Vec<_>>())
        };
        all.iter().filter_map(of_line).collect()
    }
}

fn chart(title: &str, y: &str, unit: AxisUnit, series: &[Series]) -> Option<Markup> {
    let is_recorded = series.iter().any(|line| !line.points.is_empty());
    is_recorded.then(|| lines(ChartLabels { title, x: "step", y }, unit, series))
}

impl CurveLine {
    fn points(&self, reported: &Reported) -> Vec<(u64, f64)> {
        match &self.source {
            CurveSource::Metric(name) => reported.run.metric(name),
            CurveSource::Rule => reported.run.metric(&mean_of(&reported.run.rewards().rule)),
            CurveSource::Tally(of) => reported
                .tally
                .steps
                .iter()
                .filter_map(|step| Some((step.step as u64, of(step)?)))
                .collect(),
        }
    }
}

//! Comparison of arms: tables for the terminal, and a page with these and learning curves.

use std::collections::BTreeMap;

use corver_analysis::compare::{Arm, COSTS, MIN_SEEDS, Spread};
use corver_core::stats::mean;
use corver_eval::{Direction, Evaluation, FIGURES, Figure, FigureUnit, View, figures};
use maud::html;
use serde::Serialize;

use crate::chart::{self, ChartLabels, Series, lines};
use crate::curves::axis;
use crate::page::{page, table};
use crate::run::LoadedRun;
use crate::scatter::{Mark, scatter};

/// A table of text cells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Column headings.
    pub header: Vec<String>,
    /// Rows, usually one per arm.
    pub rows: Vec<Vec<String>>,
}

/// Tables and verdicts of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tables {
    /// Figures before training, and mean ± standard deviation of each arm.
    pub figures: Table,
    /// Differences of the other arms from the first.
    pub differences: Table,
    /// Cost of a step of each arm: time, requests, tokens, money.
    pub costs: Table,
    /// Differences of the other arms from the first in time and money.
    pub cost_differences: Table,
    /// Sentence about each other arm: figures that are better or worse than the first arm's.
    pub verdicts: Vec<String>,
    /// Answers to further question sets, a table for each.
    pub sets: Vec<Table>,
}

/// Answers of several policies to one question set.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QuestionSet {
    /// Name of the set.
    pub name: String,
    /// Policies in order, with the evaluation of each seed.
    pub policies: Vec<(String, Vec<Evaluation>)>,
}

impl QuestionSet {
    /// Adds the evaluation of one more seed of a policy.
    pub fn add(&mut self, policy: String, evaluation: Evaluation) {
        match self.policies.iter_mut().find(|(name, _)| *name == policy) {
            Some((_, evaluations)) => evaluations.push(evaluation),
            None => self.policies.push((policy, vec![evaluation])),
        }
    }

    /// Returns a row for each policy: mean ± standard deviation over its seeds.
    #[must_use]
    pub fn table(&self) -> Table {
        let all: Vec<&Evaluation> =
            self.policies.iter().flat_map(|(_, evaluations)| evaluations).collect();
        let shown = figures(View::Comparison, &all);
        let columns: Vec<Column> = shown.iter().map(|figure| Column::of(figure)).collect();
        let mut rows = Vec::new();
        for (policy, evaluations) in &self.policies {
            let mut cells = vec![policy.clone()];
            for (figure, column) in shown.iter().zip(&columns) {
                let values: Option<Vec<f64>> = evaluations.iter().map(figure.get).collect();
                let spread = values.map(|values| Spread::new(figure.name, values, None));
                cells.push(spread.map_or_else(absent, |spread| column.value(&spread)));
            }
            rows.push(cells);
        }
        Table { header: header(&self.name, &columns), rows }
    }
}

/// Legend of the tables of figures.
pub const LEGEND: &str = "mean ± standard deviation over the seeds; differences: mean of the \
    per-seed differences ± half of the 95 % interval, * if it excludes 0; supported: by each \
    arm's own rule and corpus";

/// Legend of the tables of costs.
pub const COST_LEGEND: &str = "per step: seconds; requests of rules by kind (NLI: pairs of texts; \
    searches: for passages), repeated ones included; tokens to and from the chat model; money: at \
    the configured prices, for requests and tokens only; time: of a step, first arm = 1; A1: the \
    arm without sentence rewards";

/// Format of a figure's column.
#[derive(Clone, Copy)]
struct Column {
    figure: &'static str,
    title: &'static str,
    unit: FigureUnit,
    better: Option<Direction>,
}

/// Metrics drawn as learning curves, with titles.
const CURVES: [(&str, &str); 6] = [
    ("corver/supported_rate", "Supported share of the sentences with a count"),
    ("rewards/judge/mean", "Judge"),
    ("completions/mean_length", "Length of a completion"),
    ("kl", "Distance from the reference"),
    ("entropy", "Entropy"),
    ("frac_reward_zero_std", "Questions without reward variance"),
];

impl Tables {
    /// Builds the tables of arms with `seeds` seeds each, compared with the first arm. `untrained`
    /// is the evaluation of the initial policy.
    ///
    /// # Panics
    /// Panics if there are no arms.
    #[must_use]
    pub fn of(arms: &[Arm], untrained: Option<&Evaluation>, seeds: usize) -> Self {
        let (first, others) = arms.split_first().expect("there is an arm to compare with");
        let is_shown = |figure: &&Figure<Evaluation>| {
            figure.views.contains(&View::Comparison) && first.figure(figure.name).is_some()
        };
        let shown: Vec<&Figure<Evaluation>> = FIGURES.iter().filter(is_shown).collect();
        let columns: Vec<Column> = shown.iter().map(|figure| Column::of(figure)).collect();
        let costs: Vec<Column> =
            COSTS.iter().filter_map(|cost| Column::of(cost).fitted(arms)).collect();
        let corner = format!("{seeds} {}", if seeds == 1 { "seed" } else { "seeds" });
        let against = format!("against {}", first.name);

        let mut before = vec!["before training".to_owned()];
        before.extend(shown.iter().map(|figure| {
            let value = untrained.and_then(figure.get);
            value.map_or_else(absent, |value| figure.unit.number(value))
        }));
        let after = |own: &[Column], arm: &Arm| {
            row(&arm.name, own, |column| Some(column.value(arm.figure(column.figure)?)))
        };
        let differences = |own: &[Column]| Table {
            header: row(&against, own, |column| {
                Some(column.unit.of_change().heading(column.title))
            }),
            rows: others
                .iter()
                .map(|arm| {
                    row(&arm.name, own, |column| column.difference(arm.figure(column.figure)?))
                })
                .collect(),
        };
        let has_a1 = first.relative_time_to_a1.is_some();
        let timed = |arm: &Arm| {
            let mut cells = after(&costs, arm);
            cells.push(format!("{:.2}×", arm.relative_time));
            cells.extend(arm.relative_time_to_a1.map(|time| format!("{time:.2}×")));
            cells
        };
        let mut cost_header = header("a step", &costs);
        cost_header.push("time".to_owned());
        if has_a1 {
            cost_header.push("time, A1 = 1".to_owned());
        }
        let spread: Vec<Column> = costs.iter().copied().filter(Column::has_spread).collect();
        let judged = [&columns[..], &costs].concat();
        Self {
            figures: Table {
                header: header(&corner, &columns),
                rows: std::iter::once(before)
                    .chain(arms.iter().map(|arm| after(&columns, arm)))
                    .collect(),
            },
            differences: differences(&columns),
            costs: Table { header: cost_header, rows: arms.iter().map(timed).collect() },
            cost_differences: differences(&spread),
            verdicts: others.iter().map(|arm| verdict(arm, &first.name, &judged, seeds)).collect(),
            sets: Vec::new(),
        }
    }
}

fn row(name: &str, columns: &[Column], cell: impl Fn(&Column) -> Option<String>) -> Vec<String> {
    let cells = columns.iter().map(|column| cell(column).unwrap_or_else(absent));
    std::iter::once(name.to_owned()).chain(cells).collect()
}

fn header(corner: &str, columns: &[Column]) -> Vec<String> {
    row(corner, columns, |column| Some(column.unit.heading(column.title)))
}

fn absent() -> String {
    "–".to_owned()
}

impl Column {
    fn of<T>(figure: &Figure<T>) -> Self {
        Self { figure: figure.name, title: figure.title, unit: figure.unit, better: figure.better }
    }

    /// Adapts the number format to the arms' values: money gets three significant digits. `None` if
    /// all values are 0 or missing.
    fn fitted(self, arms: &[Arm]) -> Option<Self> {
        let means = arms.iter().filter_map(|arm| Some(arm.figure(self.figure)?.mean));
        let largest = means.reduce(f64::max).filter(|largest| *largest > 0.0)?;
        let digits = (2.0 - largest.log10().floor()).clamp(0.0, 9.0) as usize;
        let unit =
            if self.unit == FigureUnit::Money { FigureUnit::Number(digits) } else { self.unit };
        Some(Self { unit, ..self })
    }

    /// True if the table shows deviation and difference. Counts have none, so that the table fits a
    /// terminal.
    fn has_spread(&self) -> bool {
        self.unit != FigureUnit::Count
    }

    fn value(&self, spread: &Spread) -> String {
        let mean = self.unit.number(spread.mean);
        let has_spread = self.has_spread() && spread.values.len() > 1;
        if has_spread { format!("{mean} ± {}", self.unit.number(spread.deviation)) } else { mean }
    }

    fn difference(&self, spread: &Spread) -> Option<String> {
        let difference = spread.difference?;
        let sign = if difference.mean.is_sign_negative() { "−" } else { "+" };
        let mean = format!("{sign}{}", self.unit.number(difference.mean.abs()));
        let half = difference
            .interval
            .map(|(low, high)| format!(" ± {}", self.unit.number((high - low) / 2.0)));
        let clear = if difference.is_clear() { "*" } else { "" };
        Some(format!("{mean}{}{clear}", half.unwrap_or_default()))
    }
}

fn verdict(arm: &Arm, first: &str, columns: &[Column], seeds: usize) -> String {
    let name = &arm.name;
    if seeds == 1 {
        return format!(
            "{name}: one seed is not enough to compare it with {first}; --resume --seeds 3 adds two"
        );
    }
    if seeds < MIN_SEEDS {
        return format!(
            "{name} against {first}: two seeds decide nothing; --resume --seeds 5 adds more"
        );
    }
    let mut better = Vec::new();
    let mut worse = Vec::new();
    let mut unclear = Vec::new();
    for column in columns {
        let (Some(direction), Some(spread)) = (&column.better, arm.figure(column.figure)) else {
            continue;
        };
        let Some(difference) = spread.difference else { continue };
        let is_better = (difference.mean > 0.0) == matches!(direction, Direction::Up);
        match (difference.is_clear(), is_better) {
            (false, _) => unclear.push(column.title),
            (true, true) => better.push(column.title),
            (true, false) => worse.push(column.title),
        }
    }
    let mut clauses = Vec::new();
    for (what, titles) in
        [("better in", better), ("worse in", worse), ("no clear difference in", unclear)]
    {
        if !titles.is_empty() {
            clauses.push(format!("{what} {}", titles.join(", ")));
        }
    }
    format!("{name} against {first}: {}", clauses.join("; "))
}

/// Returns the page of a comparison. `runs` is `[arm][seed]`.
///
/// # Panics
/// Panics if there are no arms.
#[must_use]
pub fn comparison(arms: &[Arm], tables: &Tables, runs: &[Vec<LoadedRun>]) -> String {
    let shown = |Table { header, rows }: &Table| table(header, rows);
    let curve = |metric: &str| -> Vec<Series> {
        let series = |(arm, own_runs): (&Arm, &Vec<LoadedRun>)| Series {
            name: arm.name.clone(),
            points: mean_curve(own_runs, metric),
        };
        arms.iter().zip(runs).map(series).filter(|series| !series.points.is_empty()).collect()
    };
    let names = arms.iter().map(|arm| arm.name.as_str()).collect::<Vec<_>>().join(", ");
    let body = html! {
        h1 { "Comparison" }
        p { (names) }
        h2 { "After training" }
        (shown(&tables.figures))
        h2 { "Differences from " (arms[0].name) }
        (shown(&tables.differences))
        p.unit { (LEGEND) }
        @if !tables.sets.is_empty() {
            h2 { "On question sets" }
            @for set in &tables.sets { (shown(set)) }
        }
        h2 { "Cost of a step" }
        (shown(&tables.costs))
        h3 { "Differences from " (arms[0].name) }
        (shown(&tables.cost_differences))
        p.unit { (COST_LEGEND) }
        h2 { "Summary" }
        ul { @for verdict in &tables.verdicts { li { (verdict) } } }
        h2 { "Cost and quality" }
        p.unit { "One point per arm: mean over the seeds ± one standard deviation" }
        div.charts {
            @for cost in COSTS.iter().filter(|cost| cost.better.is_some()) {
                @for figure in FIGURES.iter().filter(|one| one.better == Some(Direction::Up)) {
                    @let marks = marks(arms, cost.name, figure.name);
                    @let labels =
                        ChartLabels { title: figure.title, x: cost.meaning, y: figure.meaning };
                    @let unit = match figure.unit {
                        FigureUnit::Percent => chart::AxisUnit::Share,
                        _ => chart::AxisUnit::Number,
                    };
                    @if marks.iter().any(|mark| mark.x.0 > 0.0) { (scatter(labels, unit, &marks)) }
                }
            }
        }
        h2 { "Learning curves" }
        p.unit { "Mean over the seeds" }
        div.charts {
            @for (metric, title) in CURVES {
                @let (y, unit) = axis(metric);
                (lines(ChartLabels { title, x: "step", y }, unit, &curve(metric)))
            }
        }
    };
    page(&format!("Comparison of {names}"), &body)
}

/// Returns the points of the arms that have both figures, with the same colours as the curves.
fn marks(arms: &[Arm], cost: &str, figure: &str) -> Vec<Mark> {
    let spread =
        |arm: &Arm, name: &str| arm.figure(name).map(|spread| (spread.mean, spread.deviation));
    let mark = |(series, arm): (usize, &Arm)| {
        Some(Mark {
            series,
            name: arm.name.clone(),
            x: spread(arm, cost)?,
            y: spread(arm, figure)?,
        })
    };
    arms.iter().enumerate().filter_map(mark).collect()
}

/// Averages a metric over the runs, at every step that all of them have.
fn mean_curve(runs: &[LoadedRun], metric: &str) -> Vec<(u64, f64)> {
    let mut by_step: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for run in runs {
        for (step, value) in run.metric(metric) {
            by_step.entry(step).or_default().push(value);
        }
    }
    let mut curve = Vec::new();
    for (step, values) in by_step {
        if values.len() == runs.len() {
            curve.push((step, mean(&values)));
        }
    }
    curve
}

#[cfg(test)]
mod tests {
    use corver_analysis::compare::compare;
    use corver_train::{QueryCounts, RunSummary};

    use super::*;
    use crate::testing::{run_folder, trace};

    fn arms(falsehoods: [&[f64]; 2]) -> Vec<Arm> {
        let run = |&falsehoods: &f64| RunSummary {
            after: Some(Evaluation {
                accuracy: 0.75,
                false_sentences: Some(falsehoods),
                ..Evaluation::default()
            }),
            seconds_per_step: 2.0,
            ..RunSummary::default()
        };
        let summaries = falsehoods.map(|of_arm| of_arm.iter().map(run).collect());
        compare(&["first".into(), "mine".into()], &summaries, None)
    }

    #[test]
    fn comparison_verdict_requires_seed_agreement() {
        let tables = |falsehoods, seeds| {
            let untrained = Evaluation { accuracy: 0.5, ..Evaluation::default() };
            Tables::of(&arms(falsehoods), Some(&untrained), seeds)
        };
        let clear = tables([&[0.6, 0.7, 0.65], &[0.5, 0.6, 0.56]], 3);
        assert_eq!(
            clear.verdicts,
            ["mine against first: better in false sentences; no clear difference in accuracy"]
        );
        assert_eq!(clear.figures.header[..3], ["3 seeds", "accuracy, %", "false sentences"]);
        assert_eq!(clear.figures.rows[0][..3], ["before training", "50.0", "–"]);
        assert_eq!(clear.figures.rows[1][..3], ["first", "75.0 ± 0.0", "0.65 ± 0.05"]);
        assert_eq!(clear.costs.header, ["a step", "s/step", "time"], "what no arm has is left out");
        assert_eq!(clear.costs.rows[0], ["first", "2.00 ± 0.00", "1.00×"]);
        assert_eq!(clear.differences.rows[0][..3], ["mine", "+0.0 ± 0.0", "−0.10 ± 0.01*"]);
        let unclear = tables([&[0.6, 0.7], &[0.5, 0.9]], 2);
        assert_eq!(
            unclear.verdicts,
            ["mine against first: two seeds decide nothing; --resume --seeds 5 adds more"]
        );
        let one = tables([&[0.6], &[0.5]], 1);
        assert!(one.verdicts[0].contains("one seed is not enough"), "{:?}", one.verdicts);
        assert_eq!(one.differences.rows[0][..3], ["mine", "+0.0", "−0.10"]);
    }

    /// Of `first`, which counts, and `asks`, which asks an NLI model for money; `[arm][seed]` has
    /// the pairs of a step.
    fn asking(pairs: [&[f64]; 2]) -> Vec<Arm> {
        let run = |&nli: &f64| RunSummary {
            after: Some(Evaluation { accuracy: 0.5 + nli / 1000.0, ..Evaluation::default() }),
            seconds_per_step: 1.0,
            reward_seconds_per_step: 0.02 + nli / 100.0,
            queries_per_step: QueryCounts { count: 1200.0, nli, ..QueryCounts::default() },
            cost_per_step: nli / 5000.0,
            ..RunSummary::default()
        };
        compare(
            &["first".into(), "<asks>".into()],
            &pairs.map(|of_arm| of_arm.iter().map(run).collect::<Vec<_>>()),
            None,
        )
    }

    #[test]
    fn cost_table_omits_unused_columns() {
        let tables = Tables::of(&asking([&[0.0, 0.0, 0.0], &[95.0, 97.0, 96.0]]), None, 3);
        assert_eq!(
            tables.costs.header,
            ["a step", "reward time, s", "s/step", "counts", "NLI", "money", "time"]
        );
        let of_first =
            ["first", "0.020 ± 0.000", "1.00 ± 0.00", "1200", "0", "0.0000 ± 0.0000", "1.00×"];
        let other =
            ["<asks>", "0.980 ± 0.010", "1.00 ± 0.00", "1200", "96", "0.0192 ± 0.0002", "1.00×"];
        assert_eq!(tables.costs.rows, [of_first, other]);
        assert_eq!(
            tables.cost_differences.header,
            ["against first", "reward time, s", "s/step", "money"]
        );
        let difference = ["<asks>", "+0.960 ± 0.025*", "+0.00 ± 0.00", "+0.0192 ± 0.0005*"];
        assert_eq!(tables.cost_differences.rows, [difference]);
        assert_eq!(
            tables.verdicts,
            ["<asks> against first: better in accuracy; worse in reward time, money"]
        );
    }

    #[test]
    fn question_set_table_has_row_per_policy() {
        let evaluation = |accuracy: f64, not_attempted_rate: f64| Evaluation {
            accuracy,
            not_attempted_rate,
            f1: 0.5,
            format_rate: 1.0,
            mean_length: 20.0,
            ..Evaluation::default()
        };
        let mut set = QuestionSet { name: "nq".into(), policies: Vec::new() };
        set.add("raw".into(), evaluation(0.25, 0.25));
        set.add("first".into(), evaluation(0.5, 0.0));
        set.add("first".into(), evaluation(0.75, 0.5));
        let Table { header, rows } = set.table();
        let titles =
            ["accuracy, %", "NA, %", "refusals, %", "F1, %", "format, %", "length, tokens"];
        assert_eq!(header, [&["nq"], &titles[..]].concat());
        assert_eq!(rows[0], ["raw", "25.0", "25.0", "0.0", "50.0", "100.0", "20.0"]);
        assert_eq!(
            rows[1],
            [
                "first",
                "62.5 ± 17.7",
                "25.0 ± 35.4",
                "0.0 ± 0.0",
                "50.0 ± 0.0",
                "100.0 ± 0.0",
                "20.0 ± 0.0"
            ]
        );
    }

    #[test]
    fn cost_is_drawn_against_quality() {
        for pairs in [[&[0.0][..], &[96.0]], [&[0.0, 0.0], &[95.0, 97.0]]] {
            let arms = asking(pairs);
            let page = comparison(
                &arms,
                &Tables::of(&arms, None, pairs[0].len()),
                &[Vec::new(), Vec::new()],
            );
            for axis in ["seconds of reward in a step", "money for a step"] {
                assert_eq!(
                    page.matches(axis).count(),
                    1,
                    "{axis}: there are no true sentences to draw"
                );
            }
            assert!(page.contains("&lt;asks&gt;") && !page.contains("<asks>"), "{page}");
        }
        let free = asking([&[0.0], &[0.0]]);
        let page = comparison(&free, &Tables::of(&free, None, 1), &[Vec::new(), Vec::new()]);
        assert!(page.contains("seconds of reward in a step") && !page.contains("money for a step"));
    }

    #[test]
    fn seed_mean_skips_step_that_a_seed_lacks() {
        let folders = [3, 3].map(|steps| run_folder(steps, |_| vec![trace("q", "A.", 0.0)]));
        let mut runs: Vec<LoadedRun> =
            folders.iter().map(|folder| LoadedRun::open(folder.path()).unwrap()).collect();
        runs[1].metrics[1].remove("reward");
        assert_eq!(mean_curve(&runs, "reward"), [(1, 1.0), (3, 3.0)]);
    }

    #[test]
    fn comparison_page_draws_seed_mean() {
        let folders = [4, 2].map(|steps| run_folder(steps, |_| vec![trace("q", "A.", 0.0)]));
        let runs: Vec<LoadedRun> =
            folders.iter().map(|folder| LoadedRun::open(folder.path()).unwrap()).collect();
        assert_eq!(mean_curve(&runs, "reward").len(), 2, "the steps that all have");
        let arms = arms([&[0.6], &[0.5]]);
        let tables = Tables::of(&arms, None, 1);
        let page =
            comparison(&arms, &tables, &runs.into_iter().map(|run| vec![run]).collect::<Vec<_>>());
        assert!(
            page.contains("Differences from first") && page.contains("Distance from the reference")
        );
    }
}

//! Arms of a training side by side: the tables that a terminal shows, and a page with these and the
//! curves.

use std::collections::BTreeMap;

use corver_study::compare::{Arm, Spread, mean_and_deviation};
use corver_study::eval::Evaluation;
use maud::html;
use serde::Serialize;

use crate::chart::{Labels, Series, Unit, lines};
use crate::number;
use crate::page::{page, table};
use crate::run::Run;
use crate::scatter::{Mark, scatter};

/// A heading for each column, and rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// One per column.
    pub header: Vec<String>,
    /// One per arm.
    pub rows: Vec<Vec<String>>,
}

/// A comparison in words and figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tables {
    /// Every figure before training, and of each arm: mean ± standard deviation.
    pub figures: Table,
    /// Differences from the first arm; without a row for it.
    pub differences: Table,
    /// What a step of each arm takes: time, questions, tokens, money.
    pub costs: Table,
    /// Differences in time and money from the first arm; without a row for it.
    pub cost_differences: Table,
    /// What is better or worse than in the first arm, one sentence for each other.
    pub verdicts: Vec<String>,
    /// Answers to further question sets, a table for each.
    pub sets: Vec<Table>,
}

/// Title, figure and factor of a column.
type SetColumn = (&'static str, fn(&Evaluation) -> f64, f64);

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
        let columns: [SetColumn; 5] = [
            ("accuracy, %", |evaluation| evaluation.accuracy, 100.0),
            ("NA, %", Evaluation::not_attempted_rate, 100.0),
            ("F1, %", |evaluation| evaluation.f1, 100.0),
            ("format, %", |evaluation| evaluation.format_rate, 100.0),
            ("tokens", |evaluation| evaluation.mean_length, 1.0),
        ];
        let mut header = vec![self.name.clone()];
        header.extend(columns.iter().map(|(title, ..)| (*title).to_owned()));
        let mut rows = Vec::new();
        for (policy, evaluations) in &self.policies {
            let mut row = vec![policy.clone()];
            for (_, figure, factor) in columns {
                let values: Vec<f64> =
                    evaluations.iter().map(|evaluation| factor * figure(evaluation)).collect();
                let (mean, deviation) = mean_and_deviation(&values);
                let spread =
                    if values.len() > 1 { format!(" ± {deviation:.1}") } else { String::new() };
                row.push(format!("{mean:.1}{spread}"));
            }
            rows.push(row);
        }
        Table { header, rows }
    }
}

/// How the cells are to be read.
pub const LEGEND: &str = "mean ± standard deviation over the seeds; differences seed by seed ± half of their 95 % interval, * where that leaves out 0; supported: by each arm's own rule and corpus";

/// How the cells of costs are to be read.
pub const COST_LEGEND: &str = "of one step: seconds; questions of rules by kind (NLI: pairs of texts; searches: for passages), repeated ones included; tokens to and from the chat model; money: at the stated prices, for questions and tokens alone; time: a step's, first arm = 1; A1: the arm without sentence rewards";

/// How a figure is shown.
#[derive(Clone, Copy)]
struct Column {
    figure: &'static str,
    title: &'static str,
    factor: f64,
    decimals: usize,
    /// Which way is better, where one is.
    better: Option<Direction>,
    /// With its deviation and its difference from the first arm.
    has_spread: bool,
}

#[derive(Clone, Copy)]
enum Direction {
    Up,
    Down,
}

const fn column(
    figure: &'static str,
    title: &'static str,
    (factor, decimals): (f64, usize),
    better: Option<Direction>,
) -> Column {
    Column { figure, title, factor, decimals, better, has_spread: true }
}

/// A number that only needs to be known, and would make the table too wide for a terminal with
/// more.
const fn number_of(figure: &'static str, title: &'static str) -> Column {
    Column { has_spread: false, ..column(figure, title, (1.0, 0), None) }
}

const PERCENT: (f64, usize) = (100.0, 1);
const COLUMNS: [Column; 9] = [
    column("accuracy", "accuracy, %", PERCENT, Some(Direction::Up)),
    column("not_attempted_rate", "NA, %", PERCENT, None),
    column("f1", "F1, %", PERCENT, None),
    column("format_rate", "format, %", PERCENT, None),
    column("supported_rate", "supported, %", PERCENT, None),
    column("true_sentences", "true sentences", (1.0, 2), Some(Direction::Up)),
    column("false_sentences", "false sentences", (1.0, 2), Some(Direction::Down)),
    column("refusal_rate", "refusals, %", PERCENT, None),
    column("mean_length", "tokens", (1.0, 1), None),
];

const MONEY: &str = "cost_per_step";
/// Those that are 0 in every arm are left out.
const COSTS: [Column; 10] = [
    column("reward_seconds_per_step", "reward time, s", (1.0, 3), Some(Direction::Down)),
    column("seconds_per_step", "s/step", (1.0, 2), None),
    column("samples_per_second", "samples/s", (1.0, 1), None),
    number_of("asked_per_step.count", "counts"),
    number_of("asked_per_step.nli", "NLI"),
    number_of("asked_per_step.chat", "chats"),
    number_of("asked_per_step.passages", "searches"),
    number_of("asked_per_step.prompt_tokens", "tokens to"),
    number_of("asked_per_step.completion_tokens", "tokens from"),
    column(MONEY, "money", (1.0, 0), Some(Direction::Down)),
];

/// What is drawn over what: cost, and what it is called under the axis; figure, title and unit.
const COST_AXES: [(&str, &str); 2] =
    [("reward_seconds_per_step", "seconds of reward in a step"), (MONEY, "money for a step")];
const QUALITY_AXES: [(&str, &str, &str, Unit); 2] = [
    ("accuracy", "Accuracy", "of the held-out questions", Unit::Share),
    ("true_sentences", "True sentences", "of an answer", Unit::Number),
];

/// Means over the seeds that are drawn step by step: metric, title, unit of the vertical axis.
const CURVES: [(&str, &str, &str, Unit); 6] = [
    ("corver/supported_rate", "Supported sentences", "of those that a count decided", Unit::Share),
    ("rewards/judge/mean", "Judge", "mean reward of a completion", Unit::Number),
    ("completions/mean_length", "Length", "tokens of a completion", Unit::Number),
    ("kl", "Distance from the base model", "nats per token", Unit::Number),
    ("entropy", "Entropy", "nats per token", Unit::Number),
    (
        "frac_reward_zero_std",
        "Questions that teach nothing",
        "share whose samples all earn the same",
        Unit::Share,
    ),
];

impl Tables {
    /// Of arms with this many seeds each. The first is what the others are compared with;
    /// `untrained` has the figures that all began with.
    ///
    /// # Panics
    /// Without an arm.
    #[must_use]
    pub fn of(arms: &[Arm], untrained: &BTreeMap<&str, f64>, seeds: usize) -> Self {
        let (first, others) = arms.split_first().expect("there is an arm to compare with");
        let columns: Vec<Column> =
            COLUMNS.into_iter().filter(|column| first.figure(column.figure).is_some()).collect();
        let costs: Vec<Column> =
            COSTS.into_iter().filter_map(|column| column.fitted(arms)).collect();
        let corner = format!("{seeds} {}", if seeds == 1 { "seed" } else { "seeds" });
        let against = format!("against {}", first.name);

        let before = row("before training", &columns, |column| {
            Some(column.number(*untrained.get(column.figure)?))
        });
        let after = |columns: &[Column], arm: &Arm| {
            row(&arm.name, columns, |column| Some(column.value(arm.figure(column.figure)?)))
        };
        let differences = |columns: &[Column]| Table {
            header: header(&against, columns),
            rows: others
                .iter()
                .map(|arm| {
                    row(&arm.name, columns, |column| column.difference(arm.figure(column.figure)?))
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
        let spread: Vec<Column> =
            costs.iter().filter(|column| column.has_spread).copied().collect();
        let judged: Vec<Column> = columns.iter().chain(&costs).copied().collect();
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
    row(corner, columns, |column| Some(column.title.to_owned()))
}

fn absent() -> String {
    "–".to_owned()
}

impl Column {
    /// `None` where no arm has anything of it. Money, of any currency, gets three significant
    /// digits.
    fn fitted(self, arms: &[Arm]) -> Option<Self> {
        let means = arms.iter().filter_map(|arm| Some(arm.figure(self.figure)?.mean));
        let largest = means.reduce(f64::max).filter(|largest| *largest > 0.0)?;
        let digits = (2.0 - largest.log10().floor()).clamp(0.0, 9.0) as usize;
        Some(if self.figure == MONEY { Self { decimals: digits, ..self } } else { self })
    }

    fn number(&self, value: f64) -> String {
        format!("{:.*}", self.decimals, self.factor * value)
    }

    fn value(&self, spread: &Spread) -> String {
        let mean = self.number(spread.mean);
        let has_spread = self.has_spread && spread.values.len() > 1;
        if has_spread { format!("{mean} ± {}", self.number(spread.deviation)) } else { mean }
    }

    fn difference(&self, spread: &Spread) -> Option<String> {
        let difference = spread.difference?;
        let mean = number::signed(format!("{:+.*}", self.decimals, self.factor * difference.mean));
        let half = difference
            .interval
            .map(|(low, high)| format!(" ± {}", self.number((high - low) / 2.0)));
        let clear = if difference.is_clear() { "*" } else { "" };
        Some(format!("{mean}{}{clear}", half.unwrap_or_default()))
    }

    /// The title without its unit.
    fn name(&self) -> &str {
        self.title.split(',').next().unwrap_or(self.title)
    }
}

fn verdict(arm: &Arm, first: &str, columns: &[Column], seeds: usize) -> String {
    let name = &arm.name;
    if seeds < 2 {
        return format!(
            "{name}: one seed cannot say whether it is better than {first}; --resume --seeds 3 adds two"
        );
    }
    let (mut better, mut worse, mut unclear) = (Vec::new(), Vec::new(), Vec::new());
    for column in columns {
        let (Some(direction), Some(spread)) = (&column.better, arm.figure(column.figure)) else {
            continue;
        };
        let Some(difference) = spread.difference else { continue };
        let is_better = (difference.mean > 0.0) == matches!(direction, Direction::Up);
        match (difference.is_clear(), is_better) {
            (false, _) => unclear.push(column.name()),
            (true, true) => better.push(column.name()),
            (true, false) => worse.push(column.name()),
        }
    }
    let parts = [("better in", better), ("worse in", worse), ("no clear difference in", unclear)];
    let said: Vec<String> = parts
        .into_iter()
        .filter(|(_, figures)| !figures.is_empty())
        .map(|(what, figures)| format!("{what} {}", figures.join(", ")))
        .collect();
    format!("{name} against {first}: {}", said.join("; "))
}

/// The page. `runs` is `[arm][seed]`.
///
/// # Panics
/// Without an arm.
#[must_use]
pub fn comparison(arms: &[Arm], tables: &Tables, runs: &[Vec<Run>]) -> String {
    let shown = |Table { header, rows }: &Table| {
        table(&header.iter().map(String::as_str).collect::<Vec<_>>(), rows)
    };
    let curve = |metric: &str| -> Vec<Series> {
        let series = |(arm, runs): (&Arm, &Vec<Run>)| Series {
            name: arm.name.clone(),
            points: mean_curve(runs, metric),
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
        h2 { "What a step costs" }
        (shown(&tables.costs))
        h3 { "Differences from " (arms[0].name) }
        (shown(&tables.cost_differences))
        p.unit { (COST_LEGEND) }
        h2 { "In words" }
        ul { @for verdict in &tables.verdicts { li { (verdict) } } }
        h2 { "Cost against quality" }
        p.unit { "One point for each arm: means over the seeds, with lines of one standard deviation" }
        div.charts {
            @for (cost, x) in COST_AXES {
                @for (figure, title, y, unit) in QUALITY_AXES {
                    @let marks = marks(arms, cost, figure);
                    @if marks.iter().any(|mark| mark.x.0 > 0.0) { (scatter(Labels { title, x, y }, unit, &marks)) }
                }
            }
        }
        h2 { "While training" }
        p.unit { "Means over the seeds" }
        div.charts {
            @for (metric, title, y, unit) in CURVES {
                (lines(Labels { title, x: "step", y }, unit, &curve(metric)))
            }
        }
    };
    page(&format!("Comparison of {names}"), &body)
}

/// Every arm that has both figures, in the colour that it has in the curves.
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

/// The mean over the runs at every step that all of them have.
fn mean_curve(runs: &[Run], metric: &str) -> Vec<(u64, f64)> {
    let curves: Vec<Vec<(u64, f64)>> = runs.iter().map(|run| run.metric(metric)).collect();
    let steps = curves.iter().map(Vec::len).min().unwrap_or(0);
    let mean = |n: usize| {
        (curves[0][n].0, curves.iter().map(|curve| curve[n].1).sum::<f64>() / curves.len() as f64)
    };
    (0..steps).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use corver_study::compare::compare;
    use corver_study::eval::Grades;
    use corver_study::run::{Asked, Summary};

    use super::*;
    use crate::testing::{run_folder, trace};

    fn arms(falsehoods: [&[f64]; 2]) -> Vec<Arm> {
        let run = |&falsehoods: &f64| Summary {
            accuracy_after: Some(0.75),
            false_sentences_after: Some(falsehoods),
            seconds_per_step: 2.0,
            ..Summary::default()
        };
        let summaries = falsehoods.map(|of_arm| of_arm.iter().map(run).collect());
        compare(&["first".into(), "mine".into()], &summaries, None)
    }

    #[test]
    fn fewer_falsehoods_are_better_where_the_seeds_agree() {
        let tables = |falsehoods, seeds| {
            Tables::of(&arms(falsehoods), &BTreeMap::from([("accuracy", 0.5)]), seeds)
        };
        let clear = tables([&[0.6, 0.7, 0.65], &[0.5, 0.6, 0.56]], 3);
        assert_eq!(
            clear.verdicts,
            ["mine against first: better in false sentences; no clear difference in accuracy"]
        );
        assert_eq!(clear.figures.rows[0], ["before training", "50.0", "–"]);
        assert_eq!(clear.figures.rows[1], ["first", "75.0 ± 0.0", "0.65 ± 0.05"]);
        assert_eq!(clear.costs.header, ["a step", "s/step", "time"], "what no arm has is left out");
        assert_eq!(clear.costs.rows[0], ["first", "2.00 ± 0.00", "1.00×"]);
        assert_eq!(clear.differences.rows, [["mine", "+0.0 ± 0.0", "−0.10 ± 0.01*"]]);
        let unclear = tables([&[0.6, 0.7], &[0.5, 0.9]], 2);
        assert_eq!(
            unclear.verdicts,
            ["mine against first: no clear difference in accuracy, false sentences"]
        );
        let one = tables([&[0.6], &[0.5]], 1);
        assert!(one.verdicts[0].contains("one seed cannot say"), "{:?}", one.verdicts);
        assert_eq!(one.differences.rows, [["mine", "+0.0", "−0.10"]]);
    }

    /// Of `first`, which counts, and `asks`, which asks an NLI model for money; `[arm][seed]` has
    /// the pairs of a step.
    fn asking(pairs: [&[f64]; 2]) -> Vec<Arm> {
        let run = |&nli: &f64| Summary {
            accuracy_after: Some(0.5 + nli / 1000.0),
            seconds_per_step: 1.0,
            reward_seconds_per_step: 0.02 + nli / 100.0,
            asked_per_step: Some(Asked { count: 1200.0, nli, ..Asked::default() }),
            cost_per_step: Some(nli / 5000.0),
            ..Summary::default()
        };
        compare(
            &["first".into(), "<asks>".into()],
            &pairs.map(|of_arm| of_arm.iter().map(run).collect::<Vec<_>>()),
            None,
        )
    }

    #[test]
    fn costs_have_the_columns_that_an_arm_has() {
        let tables =
            Tables::of(&asking([&[0.0, 0.0, 0.0], &[95.0, 97.0, 96.0]]), &BTreeMap::new(), 3);
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
    fn a_question_set_has_a_row_for_each_policy() {
        let evaluation = |accuracy: f64, not_attempted: usize| Evaluation {
            accuracy,
            grades: Grades { correct: 1, incorrect: 3 - not_attempted, not_attempted },
            f1: 0.5,
            format_rate: 1.0,
            mean_length: 20.0,
            ..Evaluation::default()
        };
        let mut set = QuestionSet { name: "nq".into(), policies: Vec::new() };
        set.add("raw".into(), evaluation(0.25, 1));
        set.add("first".into(), evaluation(0.5, 0));
        set.add("first".into(), evaluation(0.75, 2));
        let Table { header, rows } = set.table();
        assert_eq!(header, ["nq", "accuracy, %", "NA, %", "F1, %", "format, %", "tokens"]);
        assert_eq!(rows[0], ["raw", "25.0", "25.0", "50.0", "100.0", "20.0"]);
        assert_eq!(
            rows[1],
            ["first", "62.5 ± 17.7", "25.0 ± 35.4", "50.0 ± 0.0", "100.0 ± 0.0", "20.0 ± 0.0"]
        );
    }

    #[test]
    fn cost_is_drawn_against_quality() {
        for pairs in [[&[0.0][..], &[96.0]], [&[0.0, 0.0], &[95.0, 97.0]]] {
            let arms = asking(pairs);
            let page = comparison(
                &arms,
                &Tables::of(&arms, &BTreeMap::new(), pairs[0].len()),
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
        let page =
            comparison(&free, &Tables::of(&free, &BTreeMap::new(), 1), &[Vec::new(), Vec::new()]);
        assert!(page.contains("seconds of reward in a step") && !page.contains("money for a step"));
    }

    #[test]
    fn a_page_draws_the_mean_of_the_seeds() {
        let folders = [4, 2].map(|steps| run_folder(steps, |_| vec![trace("q", "A.", 0.0)]));
        let runs: Vec<Run> =
            folders.iter().map(|folder| Run::open(folder.path()).unwrap()).collect();
        assert_eq!(mean_curve(&runs, "reward").len(), 2, "the steps that all have");
        let arms = arms([&[0.6], &[0.5]]);
        let tables = Tables::of(&arms, &BTreeMap::new(), 1);
        let page =
            comparison(&arms, &tables, &runs.into_iter().map(|run| vec![run]).collect::<Vec<_>>());
        assert!(
            page.contains("Differences from first")
                && page.contains("Distance from the base model")
        );
    }
}

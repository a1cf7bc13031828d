//! Arms of a training side by side: the tables that a terminal shows, and a page with these and the curves.

use std::collections::BTreeMap;

use corver_study::compare::{Arm, Spread};
use maud::html;

use crate::chart::{Labels, Series, Unit, lines};
use crate::number;
use crate::page::{page, table};
use crate::run::Run;

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
    /// Every figure before training, and of each arm: mean ± standard deviation; the time of a step.
    pub figures: Table,
    /// Differences from the first arm; without a row for it.
    pub differences: Table,
    /// What is better or worse than in the first arm, one sentence for each other.
    pub verdicts: Vec<String>,
}

/// How the cells are to be read.
pub const LEGEND: &str = "mean ± standard deviation over the seeds; differences seed by seed ± half of their 95 % interval, * where that leaves out 0; supported: by each arm's own rule and corpus";

/// How a figure is shown.
struct Column {
    figure: &'static str,
    title: &'static str,
    factor: f64,
    decimals: usize,
    /// Which way is better, where one is.
    better: Option<Direction>,
}

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
    Column { figure, title, factor, decimals, better }
}

const PERCENT: (f64, usize) = (100.0, 1);
const COLUMNS: [Column; 6] = [
    column("accuracy", "accuracy, %", PERCENT, Some(Direction::Up)),
    column("supported_rate", "supported, %", PERCENT, None),
    column("true_sentences", "true sentences", (1.0, 2), Some(Direction::Up)),
    column("false_sentences", "false sentences", (1.0, 2), Some(Direction::Down)),
    column("refusal_rate", "refusals, %", PERCENT, None),
    column("mean_length", "tokens", (1.0, 1), None),
];

/// Means over the seeds that are drawn step by step: metric, title, unit of the vertical axis.
const CURVES: [(&str, &str, &str, Unit); 6] = [
    ("corver/supported_rate", "Supported sentences", "of those that a count decided", Unit::Share),
    ("rewards/judge/mean", "Judge", "mean reward of a completion", Unit::Number),
    ("completions/mean_length", "Length", "tokens of a completion", Unit::Number),
    ("kl", "Distance from the base model", "nats per token", Unit::Number),
    ("entropy", "Entropy", "nats per token", Unit::Number),
    ("frac_reward_zero_std", "Questions that teach nothing", "share whose samples all earn the same", Unit::Share),
];

impl Tables {
    /// Of arms with this many seeds each. The first is what the others are compared with; `untrained` has the figures that all
    /// began with.
    ///
    /// # Panics
    /// Without an arm.
    #[must_use]
    pub fn of(arms: &[Arm], untrained: &BTreeMap<&str, f64>, seeds: usize) -> Self {
        let (first, others) = arms.split_first().expect("there is an arm to compare with");
        let columns: Vec<&Column> = COLUMNS.iter().filter(|column| first.figure(column.figure).is_some()).collect();
        let row = |name: &str, cell: &dyn Fn(&Column) -> Option<String>| -> Vec<String> {
            let cells = columns.iter().map(|column| cell(column).unwrap_or_else(absent));
            std::iter::once(name.to_owned()).chain(cells).collect()
        };
        let header = |corner: &str| row(corner, &|column| Some(column.title.to_owned()));

        let corner = format!("{seeds} {}", if seeds == 1 { "seed" } else { "seeds" });
        let before = row("before training", &|column| untrained.get(column.figure).map(|value| column.number(*value)));
        let after = arms.iter().map(|arm| {
            let seconds = arm.figure("seconds_per_step").map(|spread| format!("{:.2}", spread.mean));
            let times = [seconds.unwrap_or_else(absent), format!("{:.2}×", arm.relative_time)];
            [row(&arm.name, &|column| Some(column.value(arm.figure(column.figure)?))), times.to_vec()].concat()
        });
        let differences = |arm: &Arm| row(&arm.name, &|column| column.difference(arm.figure(column.figure)?));
        Self {
            figures: Table {
                header: [header(&corner), ["s/step", "time"].map(str::to_owned).to_vec()].concat(),
                rows: std::iter::once([before, vec![absent(), absent()]].concat()).chain(after).collect(),
            },
            differences: Table {
                header: header(&format!("against {}", first.name)),
                rows: others.iter().map(differences).collect(),
            },
            verdicts: others.iter().map(|arm| verdict(arm, &first.name, &columns, seeds)).collect(),
        }
    }
}

fn absent() -> String {
    "–".to_owned()
}

impl Column {
    fn number(&self, value: f64) -> String {
        format!("{:.*}", self.decimals, self.factor * value)
    }

    fn value(&self, spread: &Spread) -> String {
        let mean = self.number(spread.mean);
        if spread.values.len() > 1 { format!("{mean} ± {}", self.number(spread.deviation)) } else { mean }
    }

    fn difference(&self, spread: &Spread) -> Option<String> {
        let difference = spread.difference?;
        let mean = number::signed(format!("{:+.*}", self.decimals, self.factor * difference.mean));
        let half = difference.interval.map(|(low, high)| format!(" ± {}", self.number((high - low) / 2.0)));
        let clear = if difference.is_clear() { "*" } else { "" };
        Some(format!("{mean}{}{clear}", half.unwrap_or_default()))
    }

    /// The title without its unit.
    fn name(&self) -> &str {
        self.title.split(',').next().unwrap_or(self.title)
    }
}

fn verdict(arm: &Arm, first: &str, columns: &[&Column], seeds: usize) -> String {
    let name = &arm.name;
    if seeds < 2 {
        return format!("{name}: one seed cannot say whether it is better than {first}; --resume --seeds 3 adds two");
    }
    let (mut better, mut worse, mut unclear) = (Vec::new(), Vec::new(), Vec::new());
    for column in columns {
        let (Some(direction), Some(spread)) = (&column.better, arm.figure(column.figure)) else { continue };
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
    let shown = |Table { header, rows }: &Table| table(&header.iter().map(String::as_str).collect::<Vec<_>>(), rows);
    let curve = |metric: &str| -> Vec<Series> {
        let series =
            |(arm, runs): (&Arm, &Vec<Run>)| Series { name: arm.name.clone(), points: mean_curve(runs, metric) };
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
        ul { @for verdict in &tables.verdicts { li { (verdict) } } }
        p.unit { (LEGEND) }
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

/// The mean over the runs at every step that all of them have.
fn mean_curve(runs: &[Run], metric: &str) -> Vec<(u64, f64)> {
    let curves: Vec<Vec<(u64, f64)>> = runs.iter().map(|run| run.metric(metric)).collect();
    let steps = curves.iter().map(Vec::len).min().unwrap_or(0);
    let mean = |n: usize| (curves[0][n].0, curves.iter().map(|curve| curve[n].1).sum::<f64>() / curves.len() as f64);
    (0..steps).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use corver_study::compare::compare;
    use corver_study::run::Summary;

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
        compare(&["first".into(), "mine".into()], &summaries)
    }

    #[test]
    fn fewer_falsehoods_are_better_where_the_seeds_agree() {
        let tables = |falsehoods, seeds| Tables::of(&arms(falsehoods), &BTreeMap::from([("accuracy", 0.5)]), seeds);
        let clear = tables([&[0.6, 0.7, 0.65], &[0.5, 0.6, 0.56]], 3);
        assert_eq!(clear.verdicts, ["mine against first: better in false sentences; no clear difference in accuracy"]);
        assert_eq!(clear.figures.rows[0], ["before training", "50.0", "–", "–", "–"]);
        assert_eq!(clear.figures.rows[1], ["first", "75.0 ± 0.0", "0.65 ± 0.05", "2.00", "1.00×"]);
        assert_eq!(clear.differences.rows, [["mine", "+0.0 ± 0.0", "−0.10 ± 0.01*"]]);
        let unclear = tables([&[0.6, 0.7], &[0.5, 0.9]], 2);
        assert_eq!(unclear.verdicts, ["mine against first: no clear difference in accuracy, false sentences"]);
        let one = tables([&[0.6], &[0.5]], 1);
        assert!(one.verdicts[0].contains("one seed cannot say"), "{:?}", one.verdicts);
        assert_eq!(one.differences.rows, [["mine", "+0.0", "−0.10"]]);
    }

    #[test]
    fn a_page_draws_the_mean_of_the_seeds() {
        let folders = [4, 2].map(|steps| run_folder(steps, |_| vec![trace("q", "A.", 0.0)]));
        let runs: Vec<Run> = folders.iter().map(|folder| Run::open(folder.path()).unwrap()).collect();
        assert_eq!(mean_curve(&runs, "reward").len(), 2, "the steps that all have");
        let arms = arms([&[0.6], &[0.5]]);
        let tables = Tables::of(&arms, &BTreeMap::new(), 1);
        let page = comparison(&arms, &tables, &runs.into_iter().map(|run| vec![run]).collect::<Vec<_>>());
        assert!(page.contains("Differences from first") && page.contains("Distance from the base model"));
    }
}

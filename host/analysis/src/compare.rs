//! Comparison of arms that were trained with the same seeds. A paired test shows if an arm differs
//! from the first by more than the seeds do.

use corver_core::stats::{mean, unbiased_std};
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

use corver_eval::Direction::Down;
use corver_eval::FigureUnit::{Count, Money, Number, Seconds};
use corver_eval::{FIGURES, Figure};
use corver_train::RunSummary;

/// Confidence of an interval.
const CONFIDENCE: f64 = 0.95;
/// Least number of seeds that can show a difference. The spread of two differences is one number:
/// they may lie close together by chance.
pub const MIN_SEEDS: usize = 3;
/// Width of an interval, relative to the mean difference, that rounding alone may cause.
const ROUNDING: f64 = 1e-9;

type Cost = Figure<RunSummary>;

/// Costs of a step, in the order of columns in tables.
pub const COSTS: &[Figure<RunSummary>] = &[
    Cost::new("reward_seconds_per_step", "reward time", Seconds, |run| {
        Some(run.reward_seconds_per_step)
    })
    .better(Down)
    .means("seconds of reward in a step"),
    Cost::new("seconds_per_step", "s/step", Number(2), |run| Some(run.seconds_per_step))
        .means("seconds of a step"),
    Cost::new("samples_per_second", "samples/s", Number(1), |run| run.samples_per_second)
        .means("completions a second"),
    Cost::new("queries_per_step.count", "counts", Count, |run| Some(run.queries_per_step.count))
        .means("counts"),
    Cost::new("queries_per_step.nli", "NLI", Count, |run| Some(run.queries_per_step.nli))
        .means("pairs of texts for NLI"),
    Cost::new("queries_per_step.chat", "chats", Count, |run| Some(run.queries_per_step.chat))
        .means("chats"),
    Cost::new("queries_per_step.passages", "searches", Count, |run| {
        Some(run.queries_per_step.passages)
    })
    .means("searches for passages"),
    Cost::new("queries_per_step.prompt_tokens", "tokens to", Count, |run| {
        Some(run.queries_per_step.prompt_tokens)
    })
    .means("tokens to the chat model"),
    Cost::new("queries_per_step.completion_tokens", "tokens from", Count, |run| {
        Some(run.queries_per_step.completion_tokens)
    })
    .means("tokens of its replies"),
    Cost::new("cost_per_step", "money", Money, |run| Some(run.cost_per_step))
        .better(Down)
        .means("money for a step"),
];

/// Values of a figure over the seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spread {
    /// Name of the figure, in [`FIGURES`] or [`COSTS`].
    pub figure: &'static str,
    /// Values, one for each seed.
    pub values: Vec<f64>,
    /// Mean of the values.
    pub mean: f64,
    /// Sample standard deviation of the values; 0 for one seed.
    pub deviation: f64,
    /// Difference from the first arm; `None` in the first arm.
    pub difference: Option<PairedDifference>,
}

impl Spread {
    /// Returns the spread of `values`, with their difference from those of the first arm.
    #[must_use]
    pub fn new(figure: &'static str, values: Vec<f64>, first: Option<&[f64]>) -> Self {
        Self {
            figure,
            mean: mean(&values),
            deviation: unbiased_std(&values),
            difference: first.map(|first_values| PairedDifference::new(first_values, &values)),
            values,
        }
    }
}

/// Difference of an arm from the first arm, seed by seed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PairedDifference {
    /// Number of seeds.
    pub seeds: usize,
    /// Mean difference over the seeds.
    pub mean: f64,
    /// 95 % interval of Student's t; `None` for one seed, which has no spread.
    pub interval: Option<(f64, f64)>,
}

impl PairedDifference {
    fn new(first: &[f64], other: &[f64]) -> Self {
        let differences: Vec<f64> =
            other.iter().zip(first).map(|(value, first_value)| value - first_value).collect();
        let mean = mean(&differences);
        let deviation = unbiased_std(&differences);
        let seeds = differences.len() as f64;
        let interval = (differences.len() > 1).then(|| {
            let t = StudentsT::new(0.0, 1.0, seeds - 1.0)
                .expect("a positive number of degrees of freedom");
            let half = t.inverse_cdf(0.5 + CONFIDENCE / 2.0) * deviation / seeds.sqrt();
            (mean - half, mean + half)
        });
        Self { seeds: differences.len(), mean, interval }
    }

    /// True if there are enough seeds and the interval excludes 0. Differences that are all equal
    /// are not clear: their spread is unknown.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        let Some((low, high)) = self.interval else { return false };
        let has_spread = high - low > ROUNDING * self.mean.abs();
        self.seeds >= MIN_SEEDS && has_spread && (low > 0.0 || high < 0.0)
    }
}

/// Figures of one arm.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Arm {
    /// Name that the user gave.
    pub name: String,
    /// Figures that every run has: [`FIGURES`] of the trained policies, then [`COSTS`].
    pub figures: Vec<Spread>,
    /// Time of a step ÷ that of the first arm.
    pub relative_time: f64,
    /// Time of a step ÷ that of the arm without sentence rewards (the paper's A1); `None` without
    /// such an arm.
    pub relative_time_to_a1: Option<f64>,
}

impl Arm {
    /// Returns the figure of this name; `None` if a run lacks it.
    #[must_use]
    pub fn figure(&self, name: &str) -> Option<&Spread> {
        self.figures.iter().find(|spread| spread.figure == name)
    }
}

/// Compares arms with the first one. `summaries` is `[arm][seed]`, with the same seeds in every
/// arm; `a1` is the index of the arm without sentence rewards.
///
/// # Panics
/// If an arm has another number of runs than the first, or none.
#[must_use]
pub fn compare(names: &[String], summaries: &[Vec<RunSummary>], a1: Option<usize>) -> Vec<Arm> {
    assert!(!summaries.is_empty() && !summaries[0].is_empty(), "there is a run to compare with");
    assert!(
        summaries.iter().all(|arm| arm.len() == summaries[0].len()),
        "every arm has the same seeds"
    );
    let mut arms = Vec::new();
    for (name, runs) in names.iter().zip(summaries) {
        let first = (!arms.is_empty()).then_some(summaries[0].as_slice());
        let mut figures = spreads(FIGURES, |run| run.after.as_ref(), runs, first);
        figures.extend(spreads(COSTS, |run| Some(run), runs, first));
        arms.push(Arm {
            name: name.clone(),
            figures,
            relative_time: mean_seconds(runs) / mean_seconds(&summaries[0]),
            relative_time_to_a1: a1.map(|a1| mean_seconds(runs) / mean_seconds(&summaries[a1])),
        });
    }
    arms
}

fn mean_seconds(runs: &[RunSummary]) -> f64 {
    let seconds: Vec<f64> = runs.iter().map(|run| run.seconds_per_step).collect();
    mean(&seconds)
}

/// Returns the figures that every run has, with their differences from those of the first arm.
fn spreads<T>(
    figures: &[Figure<T>],
    part: fn(&RunSummary) -> Option<&T>,
    runs: &[RunSummary],
    first: Option<&[RunSummary]>,
) -> Vec<Spread> {
    let mut spreads = Vec::new();
    for figure in figures {
        let values = |arm: &[RunSummary]| -> Option<Vec<f64>> {
            arm.iter().map(|run| (figure.get)(part(run)?)).collect()
        };
        if let Some(arm_values) = values(runs) {
            let first_values = first.and_then(values);
            spreads.push(Spread::new(figure.name, arm_values, first_values.as_deref()));
        }
    }
    spreads
}

#[cfg(test)]
mod tests {
    use super::*;
    use corver_eval::Evaluation;
    use corver_train::QueryCounts;

    fn runs(accuracies: &[f64], seconds: f64) -> Vec<RunSummary> {
        let run = |&accuracy: &f64| RunSummary {
            after: Some(Evaluation { accuracy, ..Evaluation::default() }),
            seconds_per_step: seconds,
            ..RunSummary::default()
        };
        accuracies.iter().map(run).collect()
    }

    fn of(summaries: &[Vec<RunSummary>]) -> Vec<Arm> {
        compare(&["first".to_owned(), "min".to_owned()], summaries, Some(0))
    }

    #[test]
    fn arm_differences_are_paired_by_seed() {
        let arms = of(&[runs(&[0.70, 0.80, 0.60], 2.0), runs(&[0.72, 0.83, 0.61], 3.0)]);
        let accuracy = arms[1].figure("accuracy").unwrap();
        assert!(
            (accuracy.mean - 0.72).abs() < 1e-12 && (accuracy.deviation - 0.11).abs() < 1e-12,
            "{accuracy:?}"
        );
        let difference = accuracy.difference.unwrap();
        let (low, high) = difference.interval.unwrap();
        // 0.02 ± 4.302653 · 0.01 / √3: the arms overlap, the pairs all but agree.
        assert!((difference.mean - 0.02).abs() < 1e-12);
        assert!(
            (low + 0.004_841).abs() < 1e-5 && (high - 0.044_841).abs() < 1e-5,
            "{difference:?}"
        );
        assert!(!difference.is_clear());
        assert_eq!(arms[0].figure("accuracy").unwrap().difference, None);
        assert!((arms[1].relative_time - 1.5).abs() < 1e-12);
        assert_eq!(arms[1].relative_time_to_a1, Some(1.5));
    }

    #[test]
    fn one_seed_has_no_interval() {
        let arms = of(&[runs(&[0.7], 1.0), runs(&[0.9], 1.0)]);
        let difference = arms[1].figure("accuracy").unwrap().difference.unwrap();
        assert!(difference.interval.is_none() && !difference.is_clear());
    }

    /// 0.20 ± 12.706 · 0.01: the interval excludes 0.
    #[test]
    fn two_seeds_decide_nothing() {
        let arms = of(&[runs(&[0.5, 0.5], 1.0), runs(&[0.31, 0.29], 1.0)]);
        let difference = arms[1].figure("accuracy").unwrap().difference.unwrap();
        let (_, high) = difference.interval.unwrap();
        assert!(high < 0.0 && !difference.is_clear(), "{difference:?}");
        let arms = of(&[runs(&[0.5, 0.5, 0.5], 1.0), runs(&[0.31, 0.29, 0.3], 1.0)]);
        assert!(arms[1].figure("accuracy").unwrap().difference.unwrap().is_clear());
    }

    #[test]
    fn zero_variance_differences_are_not_clear() {
        let arms = of(&[runs(&[0.5, 0.25], 1.0), runs(&[0.75, 0.5], 1.0)]);
        let difference = arms[1].figure("accuracy").unwrap().difference.unwrap();
        assert!(
            difference.interval == Some((0.25, 0.25)) && !difference.is_clear(),
            "{difference:?}"
        );
    }

    /// In floating point, 0.72 − 0.70 and 0.82 − 0.80 differ by 10⁻¹⁶.
    #[test]
    fn differences_equal_but_for_rounding_are_not_clear() {
        let arms = of(&[runs(&[0.70, 0.80, 0.60], 1.0), runs(&[0.72, 0.82, 0.62], 1.0)]);
        let difference = arms[1].figure("accuracy").unwrap().difference.unwrap();
        let (low, high) = difference.interval.unwrap();
        assert!(0.0 < low && low < high && !difference.is_clear(), "{difference:?}");
    }

    #[test]
    fn missing_figures_are_omitted_from_comparison() {
        let arms = of(&[runs(&[0.7], 1.0), runs(&[0.9], 1.0)]);
        assert!(
            arms[0].figure("true_sentences").is_none()
                && arms[0].figure("samples_per_second").is_none()
        );
    }

    #[test]
    fn backend_requests_and_cost_are_compared() {
        let run = |nli: f64| RunSummary {
            queries_per_step: QueryCounts { nli, ..QueryCounts::default() },
            cost_per_step: nli / 1000.0,
            ..RunSummary::default()
        };
        let arms = of(&[vec![run(0.0), run(0.0), run(0.0)], vec![run(96.0), run(98.0), run(97.0)]]);
        let of_second = |name: &str| arms[1].figure(name).unwrap();
        assert!((of_second("cost_per_step").mean - 0.097).abs() < 1e-12);
        assert!(
            of_second("queries_per_step.nli")
                .difference
                .is_some_and(|one| one.mean == 97.0 && one.is_clear())
        );
        assert_eq!(of_second("queries_per_step.chat").mean, 0.0);
    }
}

//! The same training in several arms, each with the same seeds: does an arm differ from the first
//! by more than the seeds do?

use corver_core::stats::{mean, unbiased_std};
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

use corver_eval::Direction::Down;
use corver_eval::Unit::{Count, Money, Number, Seconds};
use corver_eval::{FIGURES, Figure};
use corver_train::Summary;

/// The confidence of an interval.
const CONFIDENCE: f64 = 0.95;

type Cost = Figure<Summary>;

/// Costs of a step, in the order of tables.
pub const COSTS: &[Figure<Summary>] = &[
    Cost::new("reward_seconds_per_step", "reward time", Seconds, |run| {
        Some(run.reward_seconds_per_step)
    })
    .better(Down)
    .means("seconds of reward in a step"),
    Cost::new("seconds_per_step", "s/step", Number(2), |run| Some(run.seconds_per_step))
        .means("seconds of a step"),
    Cost::new("samples_per_second", "samples/s", Number(1), |run| run.samples_per_second)
        .means("completions a second"),
    Cost::new("asked_per_step.count", "counts", Count, |run| Some(run.asked_per_step.count))
        .means("counts"),
    Cost::new("asked_per_step.nli", "NLI", Count, |run| Some(run.asked_per_step.nli))
        .means("pairs of texts for NLI"),
    Cost::new("asked_per_step.chat", "chats", Count, |run| Some(run.asked_per_step.chat))
        .means("chats"),
    Cost::new("asked_per_step.passages", "searches", Count, |run| {
        Some(run.asked_per_step.passages)
    })
    .means("searches for passages"),
    Cost::new("asked_per_step.prompt_tokens", "tokens to", Count, |run| {
        Some(run.asked_per_step.prompt_tokens)
    })
    .means("tokens to the chat model"),
    Cost::new("asked_per_step.completion_tokens", "tokens from", Count, |run| {
        Some(run.asked_per_step.completion_tokens)
    })
    .means("tokens of its replies"),
    Cost::new("cost_per_step", "money", Money, |run| Some(run.cost_per_step))
        .better(Down)
        .means("money for a step"),
];

/// A figure over the seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spread {
    /// Name of the figure, in [`FIGURES`] or [`COSTS`].
    pub figure: &'static str,
    /// One per seed.
    pub values: Vec<f64>,
    /// Of the values.
    pub mean: f64,
    /// Their standard deviation, of the sample; 0 for one seed.
    pub deviation: f64,
    /// From the first arm; `None` in it.
    pub difference: Option<PairedDifference>,
}

impl Spread {
    /// Returns the spread of `values`, with their difference from those of the first arm.
    #[must_use]
    pub fn of(figure: &'static str, values: Vec<f64>, first: Option<&[f64]>) -> Self {
        let mean = mean(&values);
        let deviation = unbiased_std(&values);
        let difference = first.map(|first| PairedDifference::of(first, &values));
        Self { figure, values, mean, deviation, difference }
    }
}

/// Arm minus first arm, seed by seed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PairedDifference {
    /// Of the seeds.
    pub mean: f64,
    /// Ends of the 95 % interval of Student's t; `None` for one seed, which has no spread.
    pub interval: Option<(f64, f64)>,
}

impl PairedDifference {
    fn of(first: &[f64], other: &[f64]) -> Self {
        let differences: Vec<f64> =
            other.iter().zip(first).map(|(other, first)| other - first).collect();
        let mean = mean(&differences);
        let deviation = unbiased_std(&differences);
        let seeds = differences.len() as f64;
        let interval = (differences.len() > 1).then(|| {
            let t = StudentsT::new(0.0, 1.0, seeds - 1.0)
                .expect("a positive number of degrees of freedom");
            let half = t.inverse_cdf(0.5 + CONFIDENCE / 2.0) * deviation / seeds.sqrt();
            (mean - half, mean + half)
        });
        Self { mean, interval }
    }

    /// Whether the interval leaves out 0. Differences that are all equal tell nothing of how they
    /// spread.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        self.interval.is_some_and(|(low, high)| low < high && (low > 0.0 || high < 0.0))
    }
}

/// One arm.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Arm {
    /// What the user calls it.
    pub name: String,
    /// Figures that every run has: [`FIGURES`] of the trained policies, then [`COSTS`].
    pub figures: Vec<Spread>,
    /// Time of a step ÷ that of the first arm.
    pub relative_time: f64,
    /// Time of a step ÷ that of the arm without sentence rewards (the paper's A1). `None`: there is
    /// no such arm.
    pub relative_time_to_a1: Option<f64>,
}

impl Arm {
    /// The figure of this name, where the runs have it.
    #[must_use]
    pub fn figure(&self, name: &str) -> Option<&Spread> {
        self.figures.iter().find(|spread| spread.figure == name)
    }
}

/// Compares arms with the first one. `summaries` is `[arm][seed]`, with the same seeds in every
/// arm; `a1` is the arm without sentence rewards, if there is one.
///
/// # Panics
/// Where an arm has another number of runs than the first, or none.
#[must_use]
pub fn compare(names: &[String], summaries: &[Vec<Summary>], a1: Option<usize>) -> Vec<Arm> {
    assert!(!summaries.is_empty() && !summaries[0].is_empty(), "there is a run to compare with");
    assert!(
        summaries.iter().all(|arm| arm.len() == summaries[0].len()),
        "every arm has the same seeds"
    );
    let seconds = |arm: &[Summary]| {
        mean(&arm.iter().map(|summary| summary.seconds_per_step).collect::<Vec<_>>())
    };
    let mut arms = Vec::new();
    for (name, runs) in names.iter().zip(summaries) {
        let first = (!arms.is_empty()).then_some(summaries[0].as_slice());
        let mut figures = spreads(FIGURES, |run| run.after.as_ref(), runs, first);
        figures.extend(spreads(COSTS, |run| Some(run), runs, first));
        arms.push(Arm {
            name: name.clone(),
            figures,
            relative_time: seconds(runs) / seconds(&summaries[0]),
            relative_time_to_a1: a1.map(|a1| seconds(runs) / seconds(&summaries[a1])),
        });
    }
    arms
}

/// Returns the figures that every run has, with their differences from those of the first arm.
fn spreads<T>(
    figures: &[Figure<T>],
    part: fn(&Summary) -> Option<&T>,
    runs: &[Summary],
    first: Option<&[Summary]>,
) -> Vec<Spread> {
    let mut spreads = Vec::new();
    for figure in figures {
        let values = |of: &[Summary]| -> Option<Vec<f64>> {
            of.iter().map(|run| (figure.get)(part(run)?)).collect()
        };
        if let Some(of_arm) = values(runs) {
            let of_first = first.and_then(values);
            spreads.push(Spread::of(figure.name, of_arm, of_first.as_deref()));
        }
    }
    spreads
}

#[cfg(test)]
mod tests {
    use super::*;
    use corver_eval::Evaluation;
    use corver_train::QueryCounts;

    fn runs(accuracies: &[f64], seconds: f64) -> Vec<Summary> {
        let run = |&accuracy: &f64| Summary {
            after: Some(Evaluation { accuracy, ..Evaluation::default() }),
            seconds_per_step: seconds,
            ..Summary::default()
        };
        accuracies.iter().map(run).collect()
    }

    fn of(summaries: &[Vec<Summary>]) -> Vec<Arm> {
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

    #[test]
    fn zero_variance_differences_are_not_clear() {
        let arms = of(&[runs(&[0.5, 0.25], 1.0), runs(&[0.75, 0.5], 1.0)]);
        let difference = arms[1].figure("accuracy").unwrap().difference.unwrap();
        assert!(
            difference.interval == Some((0.25, 0.25)) && !difference.is_clear(),
            "{difference:?}"
        );
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
    fn verifier_requests_and_cost_are_compared() {
        let run = |nli: f64| Summary {
            asked_per_step: QueryCounts { nli, ..QueryCounts::default() },
            cost_per_step: nli / 1000.0,
            ..Summary::default()
        };
        let arms = of(&[vec![run(0.0), run(0.0)], vec![run(96.0), run(98.0)]]);
        let of_second = |name: &str| arms[1].figure(name).unwrap();
        assert!((of_second("cost_per_step").mean - 0.097).abs() < 1e-12);
        assert!(
            of_second("asked_per_step.nli")
                .difference
                .is_some_and(|one| one.mean == 97.0 && one.is_clear())
        );
        assert_eq!(of_second("asked_per_step.chat").mean, 0.0);
    }
}

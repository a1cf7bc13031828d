//! The same training in several arms, each with the same seeds: does an arm differ from the first
//! by more than the seeds do?

use std::collections::BTreeMap;

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};
use statrs::statistics::Statistics;

use crate::run::Summary;

/// The confidence of an interval.
const CONFIDENCE: f64 = 0.95;

/// One figure of a run.
#[derive(Debug, Clone, Copy)]
pub struct Figure {
    /// As `summary.json` has it, without `_after`; with a dot where it is a part of another.
    pub name: &'static str,
    /// `None` where the run does not have it.
    pub of: fn(&Summary) -> Option<f64>,
    /// The same before training.
    pub before: fn(&Summary) -> Option<f64>,
}

impl Figure {
    const fn trained(
        name: &'static str,
        before: fn(&Summary) -> Option<f64>,
        of: fn(&Summary) -> Option<f64>,
    ) -> Self {
        Self { name, of, before }
    }

    const fn of_steps(name: &'static str, of: fn(&Summary) -> Option<f64>) -> Self {
        Self { name, of, before: |_| None }
    }
}

/// What arms are compared by.
pub const FIGURES: [Figure; 20] = [
    Figure::trained("accuracy", |run| run.accuracy_before, |run| run.accuracy_after),
    Figure::trained(
        "supported_rate",
        |run| run.supported_rate_before,
        |run| run.supported_rate_after,
    ),
    Figure::trained(
        "true_sentences",
        |run| run.true_sentences_before,
        |run| run.true_sentences_after,
    ),
    Figure::trained(
        "false_sentences",
        |run| run.false_sentences_before,
        |run| run.false_sentences_after,
    ),
    Figure::trained(
        "not_attempted_rate",
        |run| run.not_attempted_rate_before,
        |run| run.not_attempted_rate_after,
    ),
    Figure::trained("f1", |run| run.f1_before, |run| run.f1_after),
    Figure::trained("format_rate", |run| run.format_rate_before, |run| run.format_rate_after),
    Figure::trained("refusal_rate", |run| run.refusal_rate_before, |run| run.refusal_rate_after),
    Figure::trained("cut_off_rate", |run| run.cut_off_rate_before, |run| run.cut_off_rate_after),
    Figure::trained("mean_length", |run| run.mean_length_before, |run| run.mean_length_after),
    Figure::of_steps("seconds_per_step", |run| Some(run.seconds_per_step)),
    Figure::of_steps("reward_seconds_per_step", |run| Some(run.reward_seconds_per_step)),
    Figure::of_steps("samples_per_second", |run| run.samples_per_second),
    Figure::of_steps("asked_per_step.count", |run| Some(run.asked_per_step?.count)),
    Figure::of_steps("asked_per_step.nli", |run| Some(run.asked_per_step?.nli)),
    Figure::of_steps("asked_per_step.chat", |run| Some(run.asked_per_step?.chat)),
    Figure::of_steps("asked_per_step.passages", |run| Some(run.asked_per_step?.passages)),
    Figure::of_steps("asked_per_step.prompt_tokens", |run| Some(run.asked_per_step?.prompt_tokens)),
    Figure::of_steps("asked_per_step.completion_tokens", |run| {
        Some(run.asked_per_step?.completion_tokens)
    }),
    Figure::of_steps("cost_per_step", |run| run.cost_per_step),
];

/// The figures of the policy that every run began with, by name.
#[must_use]
pub fn untrained(run: &Summary) -> BTreeMap<&'static str, f64> {
    FIGURES.iter().filter_map(|figure| Some((figure.name, (figure.before)(run)?))).collect()
}

/// A figure over the seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spread {
    /// See [`FIGURES`].
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
        let (mean, deviation) = mean_and_deviation(&differences);
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
    /// In the order of [`FIGURES`], those that every run has.
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
    let seconds = |arm: &[Summary]| arm.iter().map(|summary| summary.seconds_per_step).mean();
    let arm = |(n, runs): (usize, &Vec<Summary>)| {
        let spread = |figure: &Figure| {
            let values: Vec<f64> = runs.iter().map(figure.of).collect::<Option<_>>()?;
            let first: Option<Vec<f64>> = summaries[0].iter().map(figure.of).collect();
            let difference =
                first.filter(|_| n > 0).map(|first| PairedDifference::of(&first, &values));
            let (mean, deviation) = mean_and_deviation(&values);
            Some(Spread { figure: figure.name, values, mean, deviation, difference })
        };
        Arm {
            name: names[n].clone(),
            figures: FIGURES.iter().filter_map(spread).collect(),
            relative_time: seconds(runs) / seconds(&summaries[0]),
            relative_time_to_a1: a1.map(|a1| seconds(runs) / seconds(&summaries[a1])),
        }
    };
    summaries.iter().enumerate().map(arm).collect()
}

/// Returns the mean and the standard deviation of a sample; that of one value is 0.
#[must_use]
pub fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    (values.mean(), if values.len() > 1 { values.std_dev() } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Asked;

    fn runs(accuracies: &[f64], seconds: f64) -> Vec<Summary> {
        let run = |&accuracy_after: &f64| Summary {
            accuracy_after: Some(accuracy_after),
            seconds_per_step: seconds,
            ..Summary::default()
        };
        accuracies.iter().map(run).collect()
    }

    fn of(summaries: &[Vec<Summary>]) -> Vec<Arm> {
        compare(&["first".to_owned(), "min".to_owned()], summaries, Some(0))
    }

    #[test]
    fn differences_are_taken_seed_by_seed() {
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
    fn equal_differences_are_not_clear() {
        let arms = of(&[runs(&[0.5, 0.25], 1.0), runs(&[0.75, 0.5], 1.0)]);
        let difference = arms[1].figure("accuracy").unwrap().difference.unwrap();
        assert!(
            difference.interval == Some((0.25, 0.25)) && !difference.is_clear(),
            "{difference:?}"
        );
    }

    #[test]
    fn the_untrained_policy_has_what_was_measured_of_it() {
        let run =
            Summary { accuracy_before: Some(0.5), accuracy_after: Some(0.7), ..Summary::default() };
        assert_eq!(untrained(&run), BTreeMap::from([("accuracy", 0.5)]));
    }

    #[test]
    fn what_a_run_does_not_have_is_left_out() {
        let arms = of(&[runs(&[0.7], 1.0), runs(&[0.9], 1.0)]);
        assert!(
            arms[0].figure("true_sentences").is_none()
                && arms[0].figure("asked_per_step.nli").is_none()
        );
    }

    #[test]
    fn questions_and_money_are_compared_too() {
        let run = |nli: f64| Summary {
            asked_per_step: Some(Asked { nli, ..Asked::default() }),
            cost_per_step: Some(nli / 1000.0),
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

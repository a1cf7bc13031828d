//! The ways in which policies are known to earn more without being better, and whether a run shows
//! them. Each compares the first steps with the last.

use corver_train::warnings::Warnings;

use crate::number;
use crate::run::Run;
use crate::tally::{StepTally, Tally};

/// Fewer steps than this show no trend.
const FEWEST_STEPS: usize = 5;
/// First and last steps are at most this many, and a fifth of all.
const MOST_STEPS: usize = 10;

/// Below this share of its first length, a completion has collapsed.
const COLLAPSED: f64 = 0.6;
/// A share that is smaller than this at the end is left alone.
const NOTABLE: f64 = 0.1;
/// By how much a share must have risen.
const RISEN: f64 = 0.05;
/// By how much the accuracy of the evaluation may fall by chance.
const FALLEN: f64 = 0.02;

/// A way to earn more without being better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hack {
    /// What it is called.
    pub name: &'static str,
    /// What is measured, with its unit.
    pub measure: &'static str,
    /// Why it pays.
    pub meaning: &'static str,
}

const LENGTH: Hack = Hack {
    name: "collapsing length",
    measure: "mean length, tokens",
    meaning: "a policy that says less can be wrong about less; Min is known for it",
};
const REPETITION: Hack = Hack {
    name: "repetition",
    measure: "sequences of four words that stood in the completion before",
    meaning: "one safe sentence is paid as often as it is said",
};
const EMPTY_THINK: Hack = Hack {
    name: "empty think",
    measure: "answers with hardly any reasoning before them",
    meaning: "where nothing is said, no sentence costs anything",
};
const REFUSALS: Hack = Hack {
    name: "rising refusals",
    measure: "completions that say that they do not know",
    meaning: "where wrong sentences cost more than the right answer brings, refusing is safe",
};
const NOT_WANTED: Hack = Hack {
    name: "reward without accuracy",
    measure: "mean return, and accuracy on held-out questions",
    meaning: "the return rose and the accuracy fell: what is paid is not what is wanted",
};

/// Every hack that is looked for.
pub const ALL: [Hack; 5] = [LENGTH, REPETITION, EMPTY_THINK, REFUSALS, NOT_WANTED];

/// Whether a run shows a hack, with the numbers that say so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What was looked for.
    pub hack: Hack,
    /// The measure in the first steps.
    pub first: String,
    /// In the last steps.
    pub last: String,
    /// Whether the run shows it.
    pub flagged: bool,
}

/// All checks that can be made, flagged or not; none where the run is too short to show a trend.
#[must_use]
pub fn checks(run: &Run, tally: &Tally) -> Vec<Check> {
    let rising = |hack, of: fn(&StepTally) -> f64| {
        let (first, last) = ends(&tally.steps.iter().map(of).collect::<Vec<_>>())?;
        let flagged = last >= NOTABLE && last - first >= RISEN;
        Some(Check { hack, first: number::percent(first), last: number::percent(last), flagged })
    };
    let checks = [
        collapsing_length(run),
        rising(REPETITION, StepTally::repetition),
        rising(EMPTY_THINK, StepTally::empty_thinks),
        rising(REFUSALS, StepTally::refusals),
        reward_without_accuracy(run),
    ];
    checks.into_iter().flatten().collect()
}

fn collapsing_length(run: &Run) -> Option<Check> {
    let (first, last) = ends(&values(run, "completions/mean_length"))?;
    let written = |length: f64| format!("{length:.1}");
    Some(Check {
        hack: LENGTH,
        first: written(first),
        last: written(last),
        flagged: last < COLLAPSED * first,
    })
}

fn reward_without_accuracy(run: &Run) -> Option<Check> {
    let (before, after) = (run.before.as_ref()?, run.after.as_ref()?);
    let (first, last) = ends(&values(run, "reward"))?;
    let written = |reward: f64, accuracy: f64| {
        format!("{}, {}", number::with_sign(reward), number::percent(accuracy))
    };
    Some(Check {
        hack: NOT_WANTED,
        first: written(first, before.accuracy),
        last: written(last, after.accuracy),
        flagged: last > first && after.accuracy < before.accuracy - FALLEN,
    })
}

fn values(run: &Run, metric: &str) -> Vec<f64> {
    run.metric(metric).into_iter().map(|(_, value)| value).collect()
}

/// The means over the first and the last steps.
fn ends(values: &[f64]) -> Option<(f64, f64)> {
    if values.len() < FEWEST_STEPS {
        return None;
    }
    let some = (values.len() / 5).clamp(1, MOST_STEPS);
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    Some((mean(&values[..some]), mean(&values[values.len() - some..])))
}

/// What training warned of, with the step after which it did.
#[must_use]
pub fn warnings(run: &Run) -> Vec<(u64, String)> {
    let mut watch = Warnings::default();
    let mut told = Vec::new();
    for (line, (step, _)) in run.metrics.iter().zip(run.metric("step")) {
        told.extend(watch.after(line).into_iter().map(|warning| (step, warning)));
    }
    told
}

#[cfg(test)]
mod tests {
    use corver_core::Compatibility;

    use super::*;
    use crate::testing::{run_folder, trace};

    const SOUND: &str = "<think>Paris is the capital city of France.</think><answer>Paris</answer>";

    /// The checks that are flagged where these completions turn up more and more.
    fn flagged(completion: &str) -> Vec<&'static str> {
        let text = |step: usize, n: usize| if n < step { completion } else { SOUND };
        let folder =
            run_folder(10, |step| (0..10).map(|n| trace("q", text(step, n), 1.0)).collect());
        let run = Run::open(folder.path()).unwrap();
        let mut tally = Tally::default();
        run.for_each_trace(|step, trace| tally.add(step, trace, Compatibility::Paper, 1)).unwrap();
        let checks = checks(&run, &tally);
        assert_eq!(checks.len(), 4, "{checks:?}");
        checks.into_iter().filter(|check| check.flagged).map(|check| check.hack.name).collect()
    }

    #[test]
    fn sound_run_raises_no_flag() {
        assert!(flagged(SOUND).is_empty());
    }

    #[test]
    fn each_hack_is_flagged() {
        let again = format!(
            "<think>{}</think><answer>Paris</answer>",
            "Paris is the capital city of France. ".repeat(5)
        );
        for (completion, hack) in [
            (again.as_str(), "repetition"),
            ("<think>.</think><answer>Paris</answer>", "empty think"),
            (
                "<think>Nobody knows that, not even I.</think><answer>I don't know</answer>",
                "rising refusals",
            ),
        ] {
            assert_eq!(flagged(completion), [hack], "{completion}");
        }
    }

    fn with_lengths(lengths: [f64; 5]) -> Run {
        let folder = run_folder(5, |_| vec![trace("q", SOUND, 1.0)]);
        let mut run = Run::open(folder.path()).unwrap();
        for (line, length) in run.metrics.iter_mut().zip(lengths) {
            line["completions/mean_length"] = length.into();
        }
        run
    }

    #[test]
    fn collapsing_length_is_flagged_with_values() {
        let check = |lengths| checks(&with_lengths(lengths), &Tally::default()).remove(0);
        assert!(!check([150.0, 140.0, 120.0, 110.0, 100.0]).flagged);
        let collapsed = check([150.0, 120.0, 90.0, 60.0, 40.0]);
        assert!(collapsed.flagged);
        assert_eq!((collapsed.first.as_str(), collapsed.last.as_str()), ("150.0", "40.0"));
    }

    #[test]
    fn reward_that_rises_while_accuracy_falls_is_flagged() {
        let mut run = with_lengths([20.0; 5]);
        let accurate = |accuracy| Some(corver_eval::Evaluation { accuracy, ..Default::default() });
        run.before = accurate(0.5);
        for (after, flagged) in [(0.6, false), (0.49, false), (0.4, true)] {
            run.after = accurate(after);
            assert_eq!(checks(&run, &Tally::default()).pop().unwrap().flagged, flagged, "{after}");
        }
    }

    #[test]
    fn short_run_has_no_hack_checks_but_warnings() {
        let folder = run_folder(4, |_| vec![trace("q", SOUND, 1.0)]);
        let mut run = Run::open(folder.path()).unwrap();
        assert!(checks(&run, &Tally::default()).is_empty() && warnings(&run).is_empty());
        run.metrics[2].insert("learning_rate".into(), 0.0.into());
        assert!(
            matches!(warnings(&run).as_slice(), [(3, warning)] if warning.contains("learning rate 0"))
        );
    }
}

//! What the completions of a run look like, step by step, and which of them are worth showing.
//! Traces go by one at a time.

use std::collections::HashSet;

use corver_core::response::AnswerRule;
use corver_core::template::MIN_REASONING;
use corver_core::text::words;
use corver_core::{Compatibility, Label, Section, Trace};
use corver_eval::{MissingAnswer, missing_answer};

/// Words of a sequence that may come again.
const SEQUENCE: usize = 4;

/// Shares of the completions of one step.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StepTally {
    /// Counted from 1.
    pub step: usize,
    completions: usize,
    graded: usize,
    right: usize,
    refusals: usize,
    without_answer: usize,
    empty_thinks: usize,
    repetition: f64,
}

impl StepTally {
    fn share(&self, part: f64) -> f64 {
        part / self.completions.max(1) as f64
    }

    /// Right answers among those that a gold decided; `None` where a judge of one's own gave other
    /// labels.
    #[must_use]
    pub fn accuracy(&self) -> Option<f64> {
        (self.graded > 0).then(|| self.right as f64 / self.graded as f64)
    }

    /// Completions that say that they do not know.
    #[must_use]
    pub fn refusals(&self) -> f64 {
        self.share(self.refusals as f64)
    }

    /// Completions without an answer, be it that they were cut off.
    #[must_use]
    pub fn without_answer(&self) -> f64 {
        self.share(self.without_answer as f64)
    }

    /// Completions that answer with less reasoning before it than the format asks for.
    #[must_use]
    pub fn empty_thinks(&self) -> f64 {
        self.share(self.empty_thinks as f64)
    }

    /// Of a completion's sequences of four words, the part that stood in it before; the mean over
    /// the completions.
    #[must_use]
    pub fn repetition(&self) -> f64 {
        self.share(self.repetition)
    }

    fn add(&mut self, trace: &Trace, compatibility: Compatibility) {
        self.completions += 1;
        let label = trace.response.judge.label.as_str();
        let is = |one: Label| label == one.to_string();
        self.right += usize::from(is(Label::Good));
        self.graded += usize::from(is(Label::Good) || is(Label::Bad) || is(Label::NotAttempted));
        // Without golds, whatever is an answer is a wrong one.
        let rule = AnswerRule::of_evaluation(compatibility);
        if rule.grade(&trace.completion, &[]) == Label::NotAttempted {
            let refused = missing_answer(&trace.completion, true, rule) == MissingAnswer::Refused;
            self.refusals += usize::from(refused);
            self.without_answer += usize::from(!refused);
        }
        self.empty_thinks += usize::from(has_empty_think(trace));
        self.repetition += repetition(&trace.completion);
    }
}

fn has_empty_think(trace: &Trace) -> bool {
    let of = |section: Section| {
        trace.sentences.iter().filter(move |sentence| sentence.section == section)
    };
    let reasoning: usize = of(Section::Think).map(|sentence| sentence.text.chars().count()).sum();
    of(Section::Answer).next().is_some() && reasoning < MIN_REASONING
}

fn repetition(text: &str) -> f64 {
    let words: Vec<&str> = words(text).collect();
    let sequences = words.windows(SEQUENCE);
    let (all, different) = (sequences.len(), sequences.collect::<HashSet<_>>().len());
    if all == 0 { 0.0 } else { (all - different) as f64 / all as f64 }
}

/// A completion that is worth showing.
#[derive(Debug, Clone)]
pub struct Shown {
    /// Its step, counted from 1.
    pub step: usize,
    /// Its place in the step, counted from 0.
    pub place: usize,
    /// Why it earned what it earned.
    pub trace: Trace,
}

/// What is kept of all the traces of a run.
#[derive(Debug, Default)]
pub struct Tally {
    /// In the order of the steps.
    pub steps: Vec<StepTally>,
    /// The largest mean returns, the largest first; of each question one.
    pub best: Vec<Shown>,
    /// The smallest mean returns, the smallest first; of each question one.
    pub worst: Vec<Shown>,
    /// The largest sentence reward, of either sign.
    pub largest_reward: f64,
}

impl Tally {
    /// Adds the next completion of a run, and keeps it where it is among the `shown` best or worst.
    pub fn add(&mut self, step: usize, trace: Trace, compatibility: Compatibility, shown: usize) {
        if self.steps.last().is_none_or(|last| last.step != step) {
            self.steps.push(StepTally { step, ..StepTally::default() });
        }
        let tally = self.steps.last_mut().expect("one was pushed");
        let place = tally.completions;
        tally.add(&trace, compatibility);
        self.largest_reward = self.largest_reward.max(crate::completion::largest([&trace]));
        let value = trace.mean_return;
        keep(
            &mut self.best,
            shown,
            value,
            |one| -one,
            || Shown { step, place, trace: trace.clone() },
        );
        keep(
            &mut self.worst,
            shown,
            value,
            |one| one,
            || Shown { step, place, trace: trace.clone() },
        );
    }
}

/// Keeps the completions with the least `order(mean return)`, one of each question. Of equal ones
/// the later is kept: it says more about the policy as it has become.
fn keep(
    kept: &mut Vec<Shown>,
    most: usize,
    value: f64,
    order: fn(f64) -> f64,
    shown: impl FnOnce() -> Shown,
) {
    let is_full = kept.len() >= most;
    if is_full && kept.last().is_none_or(|last| order(last.trace.mean_return) < order(value)) {
        return;
    }
    let new = shown();
    if let Some(same) = kept.iter().position(|one| one.trace.question == new.trace.question) {
        if order(kept[same].trace.mean_return) < order(value) {
            return;
        }
        kept.remove(same);
    }
    let at = kept.partition_point(|one| order(one.trace.mean_return) < order(value));
    kept.insert(at, new);
    kept.truncate(most);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::trace;

    fn tally(completions: &[&str]) -> StepTally {
        let mut tally = Tally::default();
        completions
            .iter()
            .for_each(|text| tally.add(1, trace("q", text, 0.0), Compatibility::Paper, 1));
        tally.steps[0]
    }

    const SOUND: &str = "<think>Paris is the capital city of France.</think><answer>Paris</answer>";

    #[test]
    fn tally_counts_refusals_repetition_and_missing_answers() {
        let sound = tally(&[SOUND]);
        assert_eq!(
            (sound.refusals(), sound.without_answer(), sound.empty_thinks()),
            (0.0, 0.0, 0.0)
        );
        assert_eq!((sound.repetition(), sound.accuracy()), (0.0, Some(1.0)));
        assert_eq!(
            tally(&[SOUND, "<think>x</think><answer>I don't know</answer>"]).refusals(),
            0.5
        );
        assert_eq!(tally(&[SOUND, "<think>Paris is the capital city of"]).without_answer(), 0.5);
        assert_eq!(tally(&[SOUND, "<think> </think><answer>Paris</answer>"]).empty_thinks(), 0.5);
        assert!(
            tally(&["so it goes on and so it goes on and so it goes on and so it goes"])
                .repetition()
                > 0.5
        );
    }

    #[test]
    fn tally_retains_best_and_worst_per_question() {
        let mut tally = Tally::default();
        for (step, (question, value)) in
            [("a", 1.0), ("a", 3.0), ("b", 2.0), ("c", -1.0), ("b", 2.0), ("d", 0.0), ("c", -2.0)]
                .into_iter()
                .enumerate()
        {
            tally.add(step, trace(question, SOUND, value), Compatibility::Paper, 2);
        }
        let told = |kept: &[Shown]| -> Vec<(String, f64, usize)> {
            kept.iter()
                .map(|one| (one.trace.question.clone(), one.trace.mean_return, one.step))
                .collect()
        };
        assert_eq!(told(&tally.best), [("a".into(), 3.0, 1), ("b".into(), 2.0, 4)]);
        assert_eq!(told(&tally.worst), [("c".into(), -2.0, 6), ("d".into(), 0.0, 5)]);
    }
}

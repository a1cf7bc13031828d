//! Statistics of a run's completions by step, and its best and worst completions. Traces are read
//! one at a time.

use std::collections::HashSet;

use corver_core::response::{AnswerRule, normalize};
use corver_core::template::MIN_REASONING;
use corver_core::text::words;
use corver_core::{Label, Language, Section, TextSettings, Trace};
use corver_eval::{MissingAnswer, missing_answer};

/// Words of a sequence that counts as repeated.
const SEQUENCE: usize = 4;

/// Statistics of the completions of one step.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StepTally {
    /// Number of the step, from 1.
    pub step: usize,
    completions: usize,
    graded: usize,
    right: usize,
    refusals: usize,
    without_answer: usize,
    empty_thinks: usize,
    texts_after_answer: usize,
    repetition: f64,
}

impl StepTally {
    fn share(&self, part: f64) -> f64 {
        part / self.completions.max(1) as f64
    }

    /// Returns the share of correct answers among the graded ones; `None` if the judge is a plugin
    /// with other labels.
    #[must_use]
    pub fn accuracy(&self) -> Option<f64> {
        (self.graded > 0).then(|| self.right as f64 / self.graded as f64)
    }

    /// Returns the share of completions that refuse to answer.
    #[must_use]
    pub fn refusals(&self) -> f64 {
        self.share(self.refusals as f64)
    }

    /// Returns the share of completions without an answer, truncated ones included.
    #[must_use]
    pub fn without_answer(&self) -> f64 {
        self.share(self.without_answer as f64)
    }

    /// Returns the share of completions that answer with less reasoning than the format requires.
    #[must_use]
    pub fn empty_thinks(&self) -> f64 {
        self.share(self.empty_thinks as f64)
    }

    /// Returns the share of completions with text after the first answer.
    #[must_use]
    pub fn texts_after_answer(&self) -> f64 {
        self.share(self.texts_after_answer as f64)
    }

    /// Returns the mean share of a completion's four-word sequences that repeat an earlier one.
    #[must_use]
    pub fn repetition(&self) -> f64 {
        self.share(self.repetition)
    }

    fn add(&mut self, trace: &Trace, text: TextSettings) {
        self.completions += 1;
        let label = trace.response.judge.label.as_str();
        let is = |one: Label| label == one.to_string();
        self.right += usize::from(is(Label::Good));
        self.graded += usize::from(is(Label::Good) || is(Label::Bad) || is(Label::NotAttempted));
        // Graded without golds: only the label NOT_ATTEMPTED matters here.
        let rule = AnswerRule::of_training(text);
        if rule.grade(&trace.completion, &[]) == Label::NotAttempted {
            let refused = missing_answer(&trace.completion, true, rule) == MissingAnswer::Refused;
            self.refusals += usize::from(refused);
            self.without_answer += usize::from(!refused);
        }
        self.empty_thinks += usize::from(has_empty_think(trace));
        self.texts_after_answer += usize::from(has_text_after_answer(&trace.completion));
        self.repetition += repetition(&trace.completion, text.language);
    }
}

fn has_empty_think(trace: &Trace) -> bool {
    let of = |section: Section| {
        trace.sentences.iter().filter(move |sentence| sentence.section == section)
    };
    let reasoning: usize = of(Section::Think).map(|sentence| sentence.text.chars().count()).sum();
    of(Section::Answer).next().is_some() && reasoning < MIN_REASONING
}

fn has_text_after_answer(completion: &str) -> bool {
    completion.split_once("</answer>").is_some_and(|(_, rest)| !rest.trim().is_empty())
}

fn repetition(text: &str, language: Language) -> f64 {
    let characters;
    let words: Vec<&str> = if language == Language::Chinese {
        characters = normalize(text, language);
        characters.split(' ').collect()
    } else {
        words(text).collect()
    };
    let sequences = words.windows(SEQUENCE);
    let total = sequences.len();
    let distinct = sequences.collect::<HashSet<_>>().len();
    if total == 0 { 0.0 } else { (total - distinct) as f64 / total as f64 }
}

/// A completion that a report shows.
#[derive(Debug, Clone)]
pub struct Shown {
    /// Number of its step, from 1.
    pub step: usize,
    /// Index in its step, from 0.
    pub place: usize,
    /// Record of how its returns were computed.
    pub trace: Trace,
}

/// Statistics and extreme completions of a run's traces.
#[derive(Debug, Default)]
pub struct RunTally {
    /// Statistics by step, ascending.
    pub steps: Vec<StepTally>,
    /// Completions with the largest mean returns, descending; at most one per question.
    pub best: Vec<Shown>,
    /// Completions with the smallest mean returns, ascending; at most one per question.
    pub worst: Vec<Shown>,
}

impl RunTally {
    /// Adds the next completion of a run, and retains it if it is among the `shown` best or worst.
    pub fn add(&mut self, step: usize, trace: Trace, text: TextSettings, shown: usize) {
        if self.steps.last().is_none_or(|last| last.step != step) {
            self.steps.push(StepTally { step, ..StepTally::default() });
        }
        let tally = self.steps.last_mut().expect("one was pushed");
        let place = tally.completions;
        tally.add(&trace, text);
        let value = trace.mean_return;
        let new_shown = || Shown { step, place, trace: trace.clone() };
        retain_best(&mut self.best, shown, value, |mean_return| -mean_return, new_shown);
        retain_best(&mut self.worst, shown, value, |mean_return| mean_return, new_shown);
    }
}

/// Inserts a completion if it is among the `most` with the smallest `order(mean return)`, one per
/// question. Of equal ones, the later replaces the earlier: it is closer to the final policy.
fn retain_best(
    retained: &mut Vec<Shown>,
    most: usize,
    value: f64,
    order: fn(f64) -> f64,
    shown: impl FnOnce() -> Shown,
) {
    let is_full = retained.len() >= most;
    if is_full && retained.last().is_none_or(|last| order(last.trace.mean_return) < order(value)) {
        return;
    }
    let new = shown();
    let same_question = retained.iter().position(|old| old.trace.question == new.trace.question);
    if let Some(index) = same_question {
        if order(retained[index].trace.mean_return) < order(value) {
            return;
        }
        retained.remove(index);
    }
    let index = retained.partition_point(|old| order(old.trace.mean_return) < order(value));
    retained.insert(index, new);
    retained.truncate(most);
}

#[cfg(test)]
mod tests {
    use corver_core::Compatibility;

    use super::*;
    use crate::testing::trace;

    fn tally(completions: &[&str]) -> StepTally {
        let mut tally = RunTally::default();
        completions
            .iter()
            .for_each(|text| tally.add(1, trace("q", text, 0.0), TextSettings::default(), 1));
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

    /// The published evaluation reads past `</answer>`; the published training does not.
    #[test]
    fn refusal_of_reference_is_read_by_rule_of_training() {
        let text =
            TextSettings { compatibility: Compatibility::Reference, ..TextSettings::default() };
        let refusal = "<think>x</think><answer>I don't know</answer>";
        let mut tally = RunTally::default();
        for completion in [SOUND, refusal] {
            tally.add(1, trace("q", completion, 0.0), text, 1);
        }
        assert_eq!(tally.steps[0].refusals(), 0.5);
    }

    #[test]
    fn tally_retains_best_and_worst_per_question() {
        let mut tally = RunTally::default();
        for (step, (question, value)) in
            [("a", 1.0), ("a", 3.0), ("b", 2.0), ("c", -1.0), ("b", 2.0), ("d", 0.0), ("c", -2.0)]
                .into_iter()
                .enumerate()
        {
            tally.add(step, trace(question, SOUND, value), TextSettings::default(), 2);
        }
        let summaries = |shown: &[Shown]| -> Vec<(String, f64, usize)> {
            shown
                .iter()
                .map(|one| (one.trace.question.clone(), one.trace.mean_return, one.step))
                .collect()
        };
        assert_eq!(summaries(&tally.best), [("a".into(), 3.0, 1), ("b".into(), 2.0, 4)]);
        assert_eq!(summaries(&tally.worst), [("c".into(), -2.0, 6), ("d".into(), 0.0, 5)]);
    }
}

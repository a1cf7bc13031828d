//! What every rule must keep, tried on a batch of odd completions: the same verdicts whenever and with whomever a completion
//! is judged.
//!
//! Everything else that the contract asks (finite rewards, one outcome per sentence, limits) is checked in every batch,
//! in training too.

mod responses;

pub use responses::ResponseConformance;

use corver_core::{Count, Counter, PartError, Query, RuleSentence, Section, Triplet, Verdict};
use serde::Serialize;

use crate::{Rule, RuleError};

const COMPLETIONS: u32 = 40;

/// What a sentence may be: empty, blank, long, in any script.
const TEXTS: [&str; 8] = [
    "",
    " \t",
    "Mario Camerini directed Il Seduttore.",
    "It is so.",
    "東京は日本の首都です。",
    "Dvořák naît à Nelahozeves 🎻, e\u{301}\u{200b}\u{202e}\0.",
    "A OR B (AND) İ ß.",
    "\u{feff}Rome.",
];

/// What an end of a triplet may be: names, pronouns, stop words, nothing.
const ENTITIES: [&str; 12] = [
    "Paris",
    "France",
    "Mario Camerini",
    "the city of Rome",
    "rome",
    "She",
    "",
    " ",
    "of\n\tthe",
    "A OR B",
    "June 5, 1967",
    "İstanbul 東京 🎻",
];

const COUNTS: [Option<u64>; 9] =
    [None, Some(0), Some(1), Some(4), Some(5), Some(19), Some(20), Some(1_000_000), Some(u64::MAX)];

/// What a rule made of the batch.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Conformance {
    /// Completions judged.
    pub completions: usize,
    /// Their sentences.
    pub sentences: usize,
    /// Sentences that were given a reward; the others were abstained from.
    pub scored: usize,
    /// Look-ups, all sentences together.
    pub queries: usize,
    /// Smallest reward.
    pub lowest: Option<f32>,
    /// Largest reward.
    pub highest: Option<f32>,
}

/// Why a rule does not conform.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotConformant {
    /// It broke the contract or a limit.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// Its verdict depends on more than the completion.
    #[error(
        "the verdict on sentence {index} of completion {completion} ({text:?}) is {first}; {when} it is {then}. A rule must decide from the completion and its counts alone"
    )]
    Unsteady {
        /// Which completion of the batch.
        completion: u32,
        /// Which sentence of it.
        index: u32,
        /// The sentence.
        text: String,
        /// What was different the second time.
        when: &'static str,
        /// The first reward, or “an abstention”.
        first: String,
        /// The second.
        then: String,
    },
    /// Its grade depends on more than the completion.
    #[error(
        "the completion {text:?} is graded {first}; {when} it is {then}. A rule must decide from the completion alone"
    )]
    UnsteadyGrade {
        /// How the completion begins.
        text: String,
        /// What was different the second time.
        when: &'static str,
        /// The first grade.
        first: String,
        /// The second.
        then: String,
    },
}

impl Rule {
    /// Judges a fixed batch of odd completions: all at once, again, in the opposite order, one by one, and with an index
    /// that stops counting where a query allows it. The verdicts must be the same.
    ///
    /// # Errors
    /// Where they are not, or the rule breaks its contract.
    pub fn conform(&self) -> Result<Conformance, NotConformant> {
        conform(|sentences, counter| self.judge(sentences, counter))
    }
}

fn conform(
    judge: impl Fn(&[RuleSentence], &mut dyn Counter) -> Result<Vec<Verdict>, RuleError>,
) -> Result<Conformance, NotConformant> {
    let completions: Vec<Vec<RuleSentence>> = (0..COMPLETIONS).map(completion).collect();
    let batch = completions.concat();
    let verdicts = judge(&batch, &mut Oracle::Exact)?;

    let same = |when, sentences: &[RuleSentence], mut oracle: Oracle| -> Result<(), NotConformant> {
        for (sentence, then) in sentences.iter().zip(judge(sentences, &mut oracle)?) {
            let place = batch.iter().position(|other| other == sentence).expect("every sentence is of the batch");
            let first = &verdicts[place];
            let equal = match oracle {
                Oracle::Exact => *first == then,
                // Another count may be the largest then, but it must be worth the same.
                Oracle::Stopping => first.reward == then.reward,
            };
            if !equal {
                let (first, then) = (shown(first), shown(&then));
                let RuleSentence { completion, index, text, .. } = sentence.clone();
                return Err(NotConformant::Unsteady { completion, index, text, when, first, then });
            }
        }
        Ok(())
    };
    same("judged again", &batch, Oracle::Exact)?;
    let reversed: Vec<Vec<RuleSentence>> = completions.iter().rev().cloned().collect();
    same("after other completions", &reversed.concat(), Oracle::Exact)?;
    for completion in &completions {
        same("without the other completions", completion, Oracle::Exact)?;
    }
    same("where counting stops at `enough`", &batch, Oracle::Stopping)?;

    let rewards = || verdicts.iter().filter_map(|verdict| verdict.reward);
    Ok(Conformance {
        completions: completions.len(),
        sentences: batch.len(),
        scored: rewards().count(),
        queries: verdicts.iter().map(|verdict| verdict.counts.len()).sum(),
        lowest: rewards().min_by(f32::total_cmp),
        highest: rewards().max_by(f32::total_cmp),
    })
}

fn shown(verdict: &Verdict) -> String {
    let reward = verdict.reward.map_or("an abstention".to_owned(), |reward| format!("{reward:+}"));
    match (verdict.triplet, &verdict.note) {
        (Some(triplet), Some(note)) => format!("{reward} for triplet {triplet} ({note})"),
        (Some(triplet), None) => format!("{reward} for triplet {triplet}"),
        (None, Some(note)) => format!("{reward} ({note})"),
        (None, None) => reward,
    }
}

/// Up to six sentences; every tenth completion has one with many triplets.
fn completion(completion: u32) -> Vec<RuleSentence> {
    let sentence = |index: u32| {
        let draw = |what: &str, end| draw(&format!("{completion} {index} {what}"), end);
        let triplets = if completion % 10 == 9 && index == 0 { 40 } else { draw("triplets", 4) };
        let entity = |what: &str| match draw(what, 24) {
            place if place < ENTITIES.len() => ENTITIES[place].to_owned(),
            name => format!("Name{name} {}", ENTITIES[draw(&format!("{what} 2"), ENTITIES.len())]),
        };
        let triplet = |i| Triplet {
            head: entity(&format!("head {i}")),
            relation: entity(&format!("relation {i}")),
            tail: entity(&format!("tail {i}")),
        };
        RuleSentence {
            completion,
            index,
            text: TEXTS[draw("text", TEXTS.len())].repeat(if draw("long", 20) == 0 { 100 } else { 1 }),
            section: [Section::Think, Section::Answer, Section::Body][draw("section", 3)],
            triplets: (0..triplets).map(triplet).collect(),
        }
    };
    (0..draw(&format!("{completion} sentences"), 6) as u32 + 1).map(sentence).collect()
}

/// A number below `end` that depends on `of` alone.
fn draw(of: &str, end: usize) -> usize {
    let hash = blake3::hash(of.as_bytes());
    let bytes = hash.as_bytes().first_chunk().expect("a hash has 32 bytes");
    (u64::from_le_bytes(*bytes) % end as u64) as usize
}

/// An index of nothing in particular: every query has a count, which is unknown for some and huge for others.
enum Oracle {
    Exact,
    /// Stops counting at `enough`.
    Stopping,
}

impl Counter for Oracle {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, PartError> {
        let count = |query: &Query| {
            let occurrences = COUNTS[draw(&query.to_string(), COUNTS.len())];
            let limit = query.enough.filter(|_| matches!(self, Self::Stopping)).unwrap_or(u64::MAX);
            let exact = occurrences.is_none_or(|found| found <= limit);
            Count { query: query.clone(), occurrences: occurrences.map(|found| found.min(limit)), exact }
        };
        Ok(queries.iter().map(count).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn reward(reward: f32) -> Verdict {
        Verdict { reward: Some(reward), ..Verdict::default() }
    }

    fn unsteady(judge: impl Fn(&[RuleSentence], &mut dyn Counter) -> Result<Vec<Verdict>, RuleError>) -> &'static str {
        match conform(judge) {
            Err(NotConformant::Unsteady { when, .. }) => when,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_rule_that_decides_by_the_sentence_conforms() {
        let conformance = conform(|sentences, _| {
            Ok(sentences.iter().map(|sentence| reward(sentence.triplets.len() as f32)).collect())
        })
        .unwrap();
        assert_eq!((conformance.lowest, conformance.highest), (Some(0.0), Some(40.0)));
        assert_eq!((conformance.completions, conformance.scored), (40, conformance.sentences));
    }

    #[test]
    fn memory_and_neighbours_are_found() {
        let calls = Cell::new(0);
        let forgetful = |sentences: &[RuleSentence], _: &mut dyn Counter| {
            calls.set(calls.get() + 1);
            Ok(vec![reward(calls.get() as f32); sentences.len()])
        };
        assert_eq!(unsteady(forgetful), "judged again");
        let by_place = |sentences: &[RuleSentence], _: &mut dyn Counter| {
            Ok((0..sentences.len()).map(|place| reward(place as f32)).collect())
        };
        assert_eq!(unsteady(by_place), "after other completions");
        let by_size =
            |sentences: &[RuleSentence], _: &mut dyn Counter| Ok(vec![reward(sentences.len() as f32); sentences.len()]);
        assert_eq!(unsteady(by_size), "without the other completions");
    }

    #[test]
    fn an_enough_that_is_not_enough_is_found() {
        let hasty = |sentences: &[RuleSentence], counter: &mut dyn Counter| {
            let query = |sentence: &RuleSentence| Query::new([[&sentence.text]]).with_enough(Some(5));
            let queries: Vec<Query> = sentences.iter().map(query).collect();
            let counts = counter.count(&queries).unwrap();
            Ok(counts.iter().map(|count| reward(count.occurrences.unwrap_or(0) as f32)).collect())
        };
        assert_eq!(unsteady(hasty), "where counting stops at `enough`");
    }
}

//! What every rule must keep, tried on a batch of odd completions: the same verdicts whenever and
//! with whomever a completion is judged.
//!
//! Everything else that the contract asks (finite rewards, one outcome per sentence, limits) is
//! checked in every batch, in training too.

mod oracle;
mod responses;

pub use responses::ResponseConformance;

use corver_core::template::{ANSWER, THINK, Tags};
use corver_core::{Backends, Completion, Section, Sentence, Triplet, Verdict};
use serde::Serialize;

use oracle::{Oracle, draw};

use crate::{Rule, RuleError};

const COMPLETIONS: usize = 40;

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

/// What was asked, by completion.
const QUESTIONS: [&str; 5] =
    ["Where is Rome?", "", "Who directed Il Seduttore?", "東京?", "What do you know of Lima?"];

/// What a rule made of the batch.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Conformance {
    /// Completions judged.
    pub completions: usize,
    /// Their sentences.
    pub sentences: usize,
    /// Sentences that were given a reward; the others were abstained from.
    pub scored: usize,
    /// Look-ups and other questions, all sentences together.
    pub questions: usize,
    /// Smallest reward.
    pub lowest: Option<f32>,
    /// Largest reward.
    pub highest: Option<f32>,
}

/// Why a rule does not conform.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotConformant {
    /// A rule that broke the contract or a limit.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// A rule whose judgement depends on more than the completion.
    #[error("{0}")]
    Unsteady(String),
}

impl Rule {
    /// Judges a fixed batch of odd completions: all at once, again, in the opposite order, one by
    /// one, and with a corpus that stops counting where a query allows it. The verdicts must be the
    /// same. With a corpus of unknown size they may be others, but must keep the contract.
    ///
    /// # Errors
    /// Where they are not, or the rule breaks its contract.
    pub fn conform(&self) -> Result<Conformance, NotConformant> {
        conform(|completions, verifiers| self.score(completions, verifiers))
    }
}

fn conform(
    score: impl Fn(&[Completion<'_>], &mut Backends<'_>) -> Result<Vec<Vec<Verdict>>, RuleError>,
) -> Result<Conformance, NotConformant> {
    let sentences: Vec<Vec<Sentence>> = (0..COMPLETIONS).map(sentences).collect();
    let texts: Vec<String> =
        sentences.iter().enumerate().map(|(place, sentences)| text(place, sentences)).collect();
    let golds = ["Rome".to_owned(), String::new()];
    let evidence = ["Rome is in Italy.".to_owned(), "Il Seduttore is a film.".to_owned()];
    let completion = |place: usize| Completion {
        question: QUESTIONS[place % QUESTIONS.len()],
        golds: &golds,
        title: Some("Rome"),
        evidence: &evidence[..place % 3],
        text: &texts[place],
        sentences: &sentences[place],
    };
    let places: Vec<usize> = (0..COMPLETIONS).collect();
    let batch: Vec<Completion<'_>> = places.iter().copied().map(completion).collect();
    let verdicts = score(&batch, &mut Oracle::Exact.verifiers())?;

    // These completions of the batch, judged once more, must earn what they earned.
    let same = |when, rejudged: &[usize], oracle: Oracle| -> Result<(), NotConformant> {
        let repeated: Vec<Completion<'_>> = rejudged.iter().map(|&place| batch[place]).collect();
        for (&number, again) in rejudged.iter().zip(score(&repeated, &mut oracle.verifiers())?) {
            for (index, (first, then)) in verdicts[number].iter().zip(&again).enumerate() {
                // Where counting stops, another count may be the largest, but it must be worth the
                // same.
                let equal = if let Oracle::Exact = oracle {
                    first == then
                } else {
                    first.reward == then.reward
                };
                if !equal {
                    let (first, then) = (shown(first), shown(then));
                    let text = &sentences[number][index].text;
                    return Err(NotConformant::Unsteady(format!(
                        "the verdict on sentence {index} of completion {number} ({text:?}) is \
                         {first}; {when} it is {then}. A rule must decide from the completion and \
                         its counts alone"
                    )));
                }
            }
        }
        Ok(())
    };
    same("judged again", &places, Oracle::Exact)?;
    same(
        "after other completions",
        &places.iter().copied().rev().collect::<Vec<_>>(),
        Oracle::Exact,
    )?;
    places
        .chunks(1)
        .try_for_each(|place| same("without the other completions", place, Oracle::Exact))?;
    same("where counting stops at `enough`", &places, Oracle::Stopping)?;
    score(&batch, &mut Oracle::OfUnknownSize.verifiers())?;

    let verdicts = || verdicts.iter().flatten();
    let rewards = || verdicts().filter_map(|verdict| verdict.reward);
    Ok(Conformance {
        completions: COMPLETIONS,
        sentences: verdicts().count(),
        scored: rewards().count(),
        questions: verdicts().map(|verdict| verdict.lookups.len() + verdict.exchanges.len()).sum(),
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

/// Up to six; every tenth completion has one with many triplets.
fn sentences(completion: usize) -> Vec<Sentence> {
    let sentence = |index: usize| {
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
        Sentence {
            text: TEXTS[draw("text", TEXTS.len())].repeat(if draw("long", 20) == 0 {
                100
            } else {
                1
            }),
            section: [Section::Think, Section::Answer, Section::Body][draw("section", 3)],
            span: None,
            triplets: (0..triplets).map(triplet).collect(),
        }
    };
    (0..draw(&format!("{completion} sentences"), 6) + 1).map(sentence).collect()
}

/// Every other one has a think and an answer block.
fn text(completion: usize, sentences: &[Sentence]) -> String {
    let joined = |is_part: fn(&Sentence) -> bool| {
        let part = sentences.iter().filter(|sentence| is_part(sentence));
        part.map(|sentence| sentence.text.as_str()).collect::<Vec<_>>().join(" ")
    };
    if completion.is_multiple_of(2) {
        return joined(|_| true);
    }
    let block = |Tags { open, close }, inside: String| [open, &inside, close].concat();
    let think = block(THINK, joined(|sentence| sentence.section == Section::Think));
    think + &block(ANSWER, joined(|sentence| sentence.section == Section::Answer))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use corver_core::Query;

    use super::*;

    fn reward(reward: f32) -> Verdict {
        Verdict { reward: Some(reward), ..Verdict::default() }
    }

    type Verdicts = Result<Vec<Vec<Verdict>>, RuleError>;

    /// A rule that gives each sentence this reward.
    fn each(completions: &[Completion<'_>], mut pay: impl FnMut(&Sentence) -> f32) -> Verdicts {
        let mut one = |sentence: &Sentence| reward(pay(sentence));
        Ok(completions
            .iter()
            .map(|completion| completion.sentences.iter().map(&mut one).collect())
            .collect())
    }

    /// Whether the rule is found to decide otherwise then.
    fn is_unsteady(
        when: &str,
        score: impl Fn(&[Completion<'_>], &mut Backends<'_>) -> Verdicts,
    ) -> bool {
        match conform(score) {
            Err(NotConformant::Unsteady(message)) => message.contains(&format!("; {when} it is ")),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn stateless_sentence_rule_conforms() {
        let by_triplets = |completions: &[Completion<'_>], _: &mut Backends<'_>| {
            each(completions, |sentence| sentence.triplets.len() as f32)
        };
        let conformance = conform(by_triplets).unwrap();
        assert_eq!((conformance.lowest, conformance.highest), (Some(0.0), Some(40.0)));
        assert_eq!((conformance.completions, conformance.scored), (40, conformance.sentences));
    }

    #[test]
    fn state_and_neighbour_dependence_are_detected() {
        let calls = Cell::new(0);
        let with_memory = |completions: &[Completion<'_>], _: &mut Backends<'_>| {
            calls.set(calls.get() + 1);
            each(completions, |_| calls.get() as f32)
        };
        assert!(is_unsteady("judged again", with_memory));
        let by_place = |completions: &[Completion<'_>], _: &mut Backends<'_>| {
            let mut place = 0;
            each(completions, |_| {
                place += 1;
                place as f32
            })
        };
        assert!(is_unsteady("after other completions", by_place));
        let by_size = |completions: &[Completion<'_>], _: &mut Backends<'_>| {
            each(completions, |_| completions.len() as f32)
        };
        assert!(is_unsteady("without the other completions", by_size));
    }

    #[test]
    fn too_small_enough_is_detected() {
        let hasty = |completions: &[Completion<'_>], verifiers: &mut Backends<'_>| {
            each(completions, |sentence| {
                let query = Query::new([[&sentence.text]]).with_limit(Some(5));
                verifiers.count(&[query]).unwrap()[0].occurrences.unwrap_or(0) as f32
            })
        };
        assert!(is_unsteady("where counting stops at `enough`", hasty));
    }

    #[test]
    fn rule_requiring_corpus_size_is_detected() {
        let needs_size =
            |completions: &[Completion<'_>], verifiers: &mut Backends<'_>| match verifiers
                .size()
                .tokens
            {
                Some(_) => each(completions, |_| 0.0),
                None => Err(RuleError::Unanswered { plugin: "a".into(), source: "no size".into() }),
            };
        assert!(matches!(conform(needs_size), Err(NotConformant::Rule(_))));
    }
}

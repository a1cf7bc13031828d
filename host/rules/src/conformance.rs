//! Conformance test: a rule's verdicts on a completion must not depend on time or on the other
//! completions of the batch. The completions of the test are unusual.
//!
//! Everything else in the contract (finite rewards, one outcome per sentence, limits) is checked in
//! every batch, in training too.

mod oracle;
mod responses;

pub use responses::ResponseConformance;

use corver_core::template::{ANSWER, THINK, Tags};
use corver_core::text::shorten;
use corver_core::{Backends, Completion, Section, Sentence, SentenceVerdict, Triplet};
use serde::Serialize;
use serde_json::json;

use oracle::{Oracle, draw};

use crate::{Rule, RuleError};

const COMPLETIONS: usize = 40;

/// Texts of sentences: empty, blank, long, in any script.
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

/// Heads and tails of triplets: names, pronouns, stop words, nothing.
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

/// Questions of the completions, in turn.
const QUESTIONS: [&str; 5] =
    ["Where is Rome?", "", "Who directed Il Seduttore?", "東京?", "What do you know of Lima?"];

/// Most characters of a completion in an error.
const SHOWN_CHARACTERS: usize = 1_000;

/// Result of a sentence rule's conformance test.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Conformance {
    /// Number of completions scored.
    pub completions: usize,
    /// Number of sentences in all completions.
    pub sentences: usize,
    /// Number of sentences with a reward; the rule abstained on the others.
    pub scored: usize,
    /// Number of requests about all sentences.
    pub requests: usize,
    /// Smallest reward; `None` if there is none.
    pub lowest: Option<f32>,
    /// Largest reward; `None` if there is none.
    pub highest: Option<f32>,
}

/// Error of a rule that does not conform.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConformanceError {
    /// The rule broke the contract or a limit.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// The rule broke the contract or a limit on a completion of the test.
    #[error("{error}; this is the completion: {completion}")]
    Completion {
        /// Error of the rule on this completion alone.
        error: RuleError,
        /// Start of the completion, in the format of `corver-host plugin run`; at most 1,000
        /// characters.
        completion: String,
    },
    /// The rule's decisions depend on more than the completion.
    #[error("{0}")]
    Inconsistent(String),
}

/// Verdicts of each completion's sentences.
type Verdicts = Result<Vec<Vec<SentenceVerdict>>, RuleError>;

impl Rule {
    /// Scores a fixed batch of unusual completions: together, again, in the opposite order, one by
    /// one, and with a corpus that stops counting at the limit of a query. The verdicts must be
    /// equal. With a corpus of unknown size they may differ, but must satisfy the contract.
    ///
    /// # Errors
    /// Fails if the verdicts differ, or the rule breaks its contract or a limit.
    pub fn conform(&self) -> Result<Conformance, ConformanceError> {
        conform(|completions, backends| self.score(completions, backends))
    }
}

fn conform(
    score: impl Fn(&[Completion<'_>], &mut Backends<'_>) -> Verdicts,
) -> Result<Conformance, ConformanceError> {
    let sentences: Vec<Vec<Sentence>> = (0..COMPLETIONS).map(sentences).collect();
    let texts: Vec<String> =
        sentences.iter().enumerate().map(|(index, sentences)| text(index, sentences)).collect();
    let golds = ["Rome".to_owned(), String::new()];
    let evidence = ["Rome is in Italy.".to_owned(), "Il Seduttore is a film.".to_owned()];
    let completion = |index: usize| Completion {
        question: QUESTIONS[index % QUESTIONS.len()],
        golds: &golds,
        title: Some("Rome"),
        evidence: &evidence[..index % 3],
        text: &texts[index],
        sentences: &sentences[index],
    };
    let order: Vec<usize> = (0..COMPLETIONS).collect();
    let batch: Vec<Completion<'_>> = order.iter().copied().map(completion).collect();
    let score_with = |completions: &[Completion<'_>], oracle: Oracle| {
        score(completions, &mut oracle.backends()).map_err(|error| {
            let score_alone = |single: &[Completion<'_>]| score(single, &mut oracle.backends());
            located(error, completions, score_alone, sentence_lines)
        })
    };
    let verdicts = score_with(&batch, Oracle::Exact)?;

    // Scores these completions again, and fails unless their verdicts are the same.
    let check_again = |when, indices: &[usize], oracle: Oracle| -> Result<(), ConformanceError> {
        let repeated: Vec<Completion<'_>> = indices.iter().map(|&index| batch[index]).collect();
        for (&number, again) in indices.iter().zip(score_with(&repeated, oracle)?) {
            for (index, (first, then)) in verdicts[number].iter().zip(&again).enumerate() {
                // If counting stops at a limit, another count may decide, but the reward must be
                // the same.
                let equal = if let Oracle::Exact = oracle {
                    first == then
                } else {
                    first.reward == then.reward
                };
                if !equal {
                    let first = display(first);
                    let then = display(then);
                    let text = &sentences[number][index].text;
                    return Err(ConformanceError::Inconsistent(format!(
                        "the verdict on sentence {index} of completion {number} ({text:?}) is \
                         {first}; {when} it is {then}. A rule must decide from the completion and \
                         its counts alone"
                    )));
                }
            }
        }
        Ok(())
    };
    check_again("scored again", &order, Oracle::Exact)?;
    check_again(
        "after other completions",
        &order.iter().copied().rev().collect::<Vec<_>>(),
        Oracle::Exact,
    )?;
    order.chunks(1).try_for_each(|single| {
        check_again("without the other completions", single, Oracle::Exact)
    })?;
    check_again("if counting stops at the limit", &order, Oracle::Stopping)?;
    score_with(&batch, Oracle::OfUnknownSize)?;

    let verdicts = || verdicts.iter().flatten();
    let rewards = || verdicts().filter_map(|verdict| verdict.reward);
    Ok(Conformance {
        completions: COMPLETIONS,
        sentences: verdicts().count(),
        scored: rewards().count(),
        requests: verdicts().map(|verdict| verdict.lookups.len() + verdict.exchanges.len()).sum(),
        lowest: rewards().min_by(f32::total_cmp),
        highest: rewards().max_by(f32::total_cmp),
    })
}

/// Returns the error of a rule on these completions, with the first one on which the rule fails
/// alone, if there is one.
fn located<T>(
    error: RuleError,
    completions: &[Completion<'_>],
    run: impl Fn(&[Completion<'_>]) -> Result<T, RuleError>,
    describe: impl Fn(&Completion<'_>) -> String,
) -> ConformanceError {
    if !matches!(error, RuleError::Broken(_) | RuleError::LimitExceeded(_)) {
        return error.into();
    }
    for completion in completions {
        if let Err(alone) = run(std::slice::from_ref(completion)) {
            let shown = shorten(&describe(completion), SHOWN_CHARACTERS - 1); // and an ellipsis
            return ConformanceError::Completion { error: alone, completion: shown };
        }
    }
    error.into()
}

/// Returns the sentences of a completion with their triplets, in the form of `plugin run`'s input.
fn sentence_lines(completion: &Completion<'_>) -> String {
    let mut lines = Vec::new();
    for Sentence { text, triplets, .. } in completion.sentences {
        let mut parts = Vec::new();
        for Triplet { head, relation, tail } in triplets {
            parts.push([head, relation, tail]);
        }
        lines.push(json!({"sentence": text, "triplets": parts}).to_string());
    }
    lines.join("\n")
}

fn display(verdict: &SentenceVerdict) -> String {
    let reward = verdict.reward.map_or("an abstention".to_owned(), |reward| format!("{reward:+}"));
    match (verdict.triplet, &verdict.note) {
        (Some(triplet), Some(note)) => format!("{reward} for triplet {triplet} ({note})"),
        (Some(triplet), None) => format!("{reward} for triplet {triplet}"),
        (None, Some(note)) => format!("{reward} ({note})"),
        (None, None) => reward,
    }
}

/// Returns one to six sentences. Every tenth completion has a sentence with many triplets.
fn sentences(completion: usize) -> Vec<Sentence> {
    let sentence = |index: usize| {
        let draw = |what: &str, end| draw(&format!("{completion} {index} {what}"), end);
        let triplets = if completion % 10 == 9 && index == 0 { 40 } else { draw("triplets", 4) };
        let entity = |what: &str| match draw(what, 24) {
            number if number < ENTITIES.len() => ENTITIES[number].to_owned(),
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

/// Returns the completion's text. Every second one has a think and an answer block.
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

    fn reward(reward: f32) -> SentenceVerdict {
        SentenceVerdict { reward: Some(reward), ..SentenceVerdict::default() }
    }

    /// Scores each sentence with `reward_of`.
    fn each(
        completions: &[Completion<'_>],
        mut reward_of: impl FnMut(&Sentence) -> f32,
    ) -> Verdicts {
        let mut one = |sentence: &Sentence| reward(reward_of(sentence));
        Ok(completions
            .iter()
            .map(|completion| completion.sentences.iter().map(&mut one).collect())
            .collect())
    }

    /// Returns true if the test reports that the rule decides differently in this case.
    fn is_inconsistent(
        when: &str,
        score: impl Fn(&[Completion<'_>], &mut Backends<'_>) -> Verdicts,
    ) -> bool {
        match conform(score) {
            Err(ConformanceError::Inconsistent(message)) => {
                message.contains(&format!("; {when} it is "))
            }
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
        assert!(is_inconsistent("scored again", with_memory));
        let by_position = |completions: &[Completion<'_>], _: &mut Backends<'_>| {
            let mut index = 0;
            each(completions, |_| {
                index += 1;
                index as f32
            })
        };
        assert!(is_inconsistent("after other completions", by_position));
        let by_size = |completions: &[Completion<'_>], _: &mut Backends<'_>| {
            each(completions, |_| completions.len() as f32)
        };
        assert!(is_inconsistent("without the other completions", by_size));
    }

    #[test]
    fn too_small_limit_is_detected() {
        let hasty = |completions: &[Completion<'_>], backends: &mut Backends<'_>| {
            each(completions, |sentence| {
                let query = Query::new([[&sentence.text]]).with_limit(Some(5));
                backends.count(&[query]).unwrap()[0].occurrences.unwrap_or(0) as f32
            })
        };
        assert!(is_inconsistent("if counting stops at the limit", hasty));
    }

    #[test]
    fn first_completion_that_fails_alone_is_shown() {
        let broken_by = |is_bad: fn(&Sentence) -> bool| {
            let score = |completions: &[Completion<'_>], _: &mut Backends<'_>| {
                if completions.iter().any(|completion| completion.sentences.iter().any(is_bad)) {
                    let message = format!("breaks in a batch of {}", completions.len());
                    return Err(RuleError::Broken(message));
                }
                each(completions, |_| 0.0)
            };
            let error = conform(score).unwrap_err();
            let message = error.to_string();
            assert!(message.starts_with("breaks in a batch of 1; this is the completion: "));
            let ConformanceError::Completion { completion, .. } = error else {
                panic!("{error:?}")
            };
            completion
        };
        let blank = broken_by(|sentence| sentence.text == " \t");
        assert!(blank.contains(r#"{"sentence":" \t","triplets":["#), "{blank}");
        let crowded = broken_by(|sentence| sentence.triplets.len() == 40);
        assert_eq!((crowded.chars().count(), crowded.chars().last()), (1_000, Some('…')));
    }

    #[test]
    fn failure_of_a_batch_alone_is_reported_without_completion() {
        let broken = |completions: &[Completion<'_>], _: &mut Backends<'_>| {
            if completions.len() > 1 {
                return Err(RuleError::Broken("breaks in a batch".into()));
            }
            each(completions, |_| 0.0)
        };
        assert!(matches!(conform(broken), Err(ConformanceError::Rule(RuleError::Broken(_)))));
    }

    #[test]
    fn rule_requiring_corpus_size_is_detected() {
        let needs_size =
            |completions: &[Completion<'_>], backends: &mut Backends<'_>| match backends
                .info()
                .tokens
            {
                Some(_) => each(completions, |_| 0.0),
                None => Err(RuleError::Backend { plugin: "a".into(), source: "no size".into() }),
            };
        assert!(matches!(conform(needs_size), Err(ConformanceError::Rule(_))));
    }
}

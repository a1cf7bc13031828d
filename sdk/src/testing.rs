//! Runs a rule natively against counts given by hand.
//!
//! ```
//! use corver_sdk::prelude::*;
//! use corver_sdk::testing::{counts, run, sentence};
//!
//! settings! { pub struct Seen {} }
//!
//! impl SentenceRule for Seen {
//!     fn score(&self, sentence: &Sentence, corpus: &Corpus) -> Outcome {
//!         let Some((index, triplet)) = sentence.first_valid_triplet() else { return abstain("no valid triplet") };
//!         let Some(query) = triplet.word_query() else { return abstain("fewer than two content words") };
//!         let count = corpus.count(&query)?;
//!         verdict(if count > Some(0) { 1.0 } else { -1.0 }).because(index, count)
//!     }
//! }
//!
//! let paris = sentence("Paris is in Peru.", &[("Paris", "is in", "Peru")]);
//! assert_eq!(run(&Seen::default(), &paris, &counts(&[("Paris AND Peru", 0)])).reward, Some(-1.0));
//! ```

use std::collections::BTreeMap;

use crate::{Ask, Corpus, Count, Judgement, Query, Section, Sentence, SentenceRule, Triplet};

/// The host asks no rule more often than this by default.
const ROUNDS: usize = 4;

/// A sentence with these `(head, relation, tail)` triplets, the first of its completion.
#[must_use]
pub fn sentence(text: &str, triplets: &[(&str, &str, &str)]) -> Sentence {
    let triplet = |&(head, relation, tail): &(&str, &str, &str)| Triplet {
        head: head.into(),
        relation: relation.into(),
        tail: tail.into(),
    };
    Sentence {
        completion: 0,
        index: 0,
        text: text.into(),
        section: Section::Think,
        triplets: triplets.iter().map(triplet).collect(),
        counts: Vec::new(),
    }
}

/// A corpus in which exactly these queries can be asked, each written as it prints: `"Paris AND Peru"`.
#[must_use]
pub fn counts(known: &[(&str, u64)]) -> FakeCorpus {
    FakeCorpus { known: known.iter().map(|&(query, count)| (query.to_owned(), Some(count))).collect() }
}

/// See [`counts`].
#[derive(Debug, Clone, PartialEq)]
pub struct FakeCorpus {
    known: BTreeMap<String, Option<u64>>,
}

impl FakeCorpus {
    /// Adds a query that the index cannot answer.
    #[must_use]
    pub fn without(mut self, query: &str) -> Self {
        self.known.insert(query.to_owned(), None);
        self
    }

    fn count(&self, query: Query) -> Count {
        let text = query.to_string();
        let Some(&occurrences) = self.known.get(&text) else {
            panic!(
                "the rule asked for {text:?}, which the test's corpus does not hold; it holds {:?}",
                self.known.keys()
            )
        };
        Count { query, occurrences, exact: true }
    }
}

/// What the host would record of one sentence.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// `None` where the rule abstained.
    pub reward: Option<f32>,
    /// The count that decided.
    pub count: Option<u64>,
    /// The place of the triplet that decided.
    pub triplet: Option<u32>,
    /// The rule's own words.
    pub note: Option<String>,
    /// Everything it asked for, in order.
    pub asked: Vec<String>,
}

/// Calls `rule` as the host would, answering from `corpus` until it judges.
///
/// # Panics
/// Where the rule asks for what `corpus` does not hold, asks in more rounds than the host allows, or gives a reward
/// that is not finite.
#[must_use]
pub fn run<R: SentenceRule>(rule: &R, sentence: &Sentence, corpus: &FakeCorpus) -> Judged {
    let mut known = sentence.counts.clone();
    for _ in 0..=ROUNDS {
        let judgement = match rule.score(sentence, &Corpus::new(&known)) {
            Err(Ask(queries)) => {
                known.extend(queries.into_iter().map(|query| corpus.count(query)));
                continue;
            }
            Ok(judgement) => judgement,
        };
        let asked = known.iter().map(|count| count.query.to_string()).collect();
        return match judgement {
            Judgement::Abstain(note) => Judged { reward: None, count: None, triplet: None, note, asked },
            Judgement::Score(verdict) => {
                assert!(verdict.reward.is_finite(), "the reward is {}: it must be finite", verdict.reward);
                Judged {
                    reward: Some(verdict.reward),
                    count: verdict.count,
                    triplet: verdict.triplet,
                    note: verdict.note,
                    asked,
                }
            }
        };
    }
    panic!("the rule still asks after {ROUNDS} rounds of answers");
}

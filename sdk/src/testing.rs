//! Runs a rule natively: against counts given by hand, and ([`check()`]) against generated ones.
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
//!         let count = corpus.count(query)?;
//!         verdict(if count > Some(0) { 1.0 } else { -1.0 }).because(index, count)
//!     }
//! }
//!
//! let paris = sentence("Paris is in Peru.", &[("Paris", "is in", "Peru")]);
//! assert_eq!(run(&Seen::default(), &paris, &counts(&[("Paris AND Peru", 0)])).reward, Some(-1.0));
//! corver_sdk::testing::check(&Seen::default(), -1.0..=1.0);
//! ```

mod check;
mod responses;

use std::collections::BTreeMap;

pub use check::{check, check_with};
pub use responses::{check_responses, response};

use crate::{Ask, CompletionRule, Corpus, Count, Judgement, Query, Section, Sentence, Triplet};

// What the host allows by default.
const ROUNDS: usize = 4;
const QUERIES_PER_SENTENCE: usize = 64;
const WORDS_PER_QUERY: usize = 256;

/// Head, relation and tail.
pub type Parts<'a> = (&'a str, &'a str, &'a str);

/// A sentence with these triplets, the only one of its completion. It borrows all texts.
#[must_use]
pub fn sentence<'a>(text: &'a str, triplets: &[Parts<'a>]) -> Sentence<'a> {
    completion(&[(text, triplets)]).remove(0)
}

/// A completion of these sentences, each a text and its triplets, all in one think block. They borrow all texts.
#[must_use]
pub fn completion<'a>(sentences: &[(&'a str, &[Parts<'a>])]) -> Vec<Sentence<'a>> {
    let triplet = |&(head, relation, tail): &Parts<'a>| Triplet { head, relation, tail };
    let sentence = |(index, &(text, triplets)): (u32, &(&'a str, &[Parts<'a>]))| Sentence {
        completion: 0,
        index,
        text,
        section: Section::Think,
        triplets: triplets.iter().map(triplet).collect(),
    };
    (0..).zip(sentences).map(sentence).collect()
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

    fn count(&self, query: &Query) -> Count {
        let text = query.to_string();
        let Some(&occurrences) = self.known.get(&text) else {
            panic!(
                "the rule asked for {text:?}, which the test's corpus does not hold; it holds {:?}",
                self.known.keys()
            )
        };
        Count { occurrences, exact: true }
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
    /// Everything it asked for, in order, each once.
    pub asked: Vec<String>,
}

/// Calls `rule` as the host would, answering from `corpus` until it judges.
///
/// # Panics
/// Where the rule asks for what `corpus` does not hold, or does what the host refuses.
#[must_use]
pub fn run<R: CompletionRule>(rule: &R, sentence: &Sentence, corpus: &FakeCorpus) -> Judged {
    run_completion(rule, std::slice::from_ref(sentence), corpus).remove(0)
}

/// [`run`] on the sentences of one completion.
///
/// # Panics
/// As [`run`].
#[must_use]
pub fn run_completion<R: CompletionRule>(rule: &R, completion: &[Sentence], corpus: &FakeCorpus) -> Vec<Judged> {
    settle(rule, completion, |query| corpus.count(query))
}

/// Calls `rule` until it asks nothing more.
fn settle<R: CompletionRule>(rule: &R, completion: &[Sentence], answer: impl Fn(&Query) -> Count) -> Vec<Judged> {
    let mut counts: Vec<Vec<Count>> = vec![Vec::new(); completion.len()];
    let mut asked: Vec<Vec<Query>> = vec![Vec::new(); completion.len()];
    for _ in 0..=ROUNDS {
        let with_questions = counts.iter().zip(&asked);
        let corpora: Vec<Corpus> = with_questions.map(|(counts, asked)| Corpus::recorded(counts, asked)).collect();
        let outcomes = rule.judge(completion, &corpora);
        assert_eq!(outcomes.len(), completion.len(), "a rule must give one outcome per sentence");
        if outcomes.iter().all(Result::is_ok) {
            let outcomes = outcomes.into_iter().flatten();
            return completion.iter().zip(&asked).zip(outcomes).map(|((s, asked), o)| judged(s, asked, o)).collect();
        }
        for ((counts, asked), outcome) in counts.iter_mut().zip(&mut asked).zip(outcomes) {
            for query in outcome.err().into_iter().flat_map(|Ask(queries)| queries) {
                let words: usize = query.all_of.iter().map(Vec::len).sum();
                assert!(
                    (1..=WORDS_PER_QUERY).contains(&words),
                    "a query of {words} words: 1 to {WORDS_PER_QUERY} are allowed"
                );
                assert!(
                    !query.all_of.iter().any(Vec::is_empty),
                    "a clause without words, which nothing matches: {query:?}"
                );
                counts.push(answer(&query));
                asked.push(query);
            }
            let asked = asked.len();
            assert!(
                asked <= QUERIES_PER_SENTENCE,
                "{asked} queries for one sentence: at most {QUERIES_PER_SENTENCE} are allowed"
            );
        }
    }
    panic!("the rule still asks after {ROUNDS} rounds of answers");
}

fn judged(sentence: &Sentence, queries: &[Query], judgement: Judgement) -> Judged {
    let mut asked: Vec<String> = Vec::new();
    for query in queries.iter().map(Query::to_string) {
        if !asked.contains(&query) {
            asked.push(query);
        }
    }
    match judgement {
        Judgement::Abstain(note) => Judged { reward: None, count: None, triplet: None, note, asked },
        Judgement::Score(verdict) => {
            assert!(verdict.reward.is_finite(), "the reward is {}: it must be finite", verdict.reward);
            let triplets = sentence.triplets.len();
            let is_there = verdict.triplet.is_none_or(|place| (place as usize) < triplets);
            assert!(is_there, "the verdict rests on triplet {:?} of {triplets}", verdict.triplet);
            Judged {
                reward: Some(verdict.reward),
                count: verdict.count,
                triplet: verdict.triplet,
                note: verdict.note,
                asked,
            }
        }
    }
}

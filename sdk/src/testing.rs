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

use crate::{Ask, Completion, CompletionRule, Corpus, CorpusSize, Count, Judgement, Query, Section, Sentence, Triplet};

mod limits {
    include!("../../wit/limits.rs");
}

/// Head, relation and tail.
pub type Parts<'a> = (&'a str, &'a str, &'a str);

/// The paper's example: “Mario Camerini directed Il Seduttore. The film starred Sophia Loren.”
pub const FILM: [Parts; 2] =
    [("Mario Camerini", "directed", "Il Seduttore"), ("Il Seduttore", "starred", "Sophia Loren")];
/// What is asked about the first fact of [`FILM`].
pub const DIRECTED: &str = "Mario AND Camerini AND Il AND Seduttore";
/// What is asked about its second.
pub const STARRED: &str = "Il AND Seduttore AND Sophia AND Loren";

/// A sentence of a think block with these triplets.
#[must_use]
pub fn sentence(text: &str, triplets: &[Parts]) -> Sentence {
    let triplet = |&(head, relation, tail): &Parts| {
        let [head, relation, tail] = [head, relation, tail].map(str::to_owned);
        Triplet { head, relation, tail }
    };
    Sentence { text: text.to_owned(), section: Section::Think, triplets: triplets.iter().map(triplet).collect() }
}

/// A completion of these sentences, each a text and its triplets, all in one think block: no question, no answer.
#[must_use]
pub fn completion(sentences: &[(&str, &[Parts])]) -> Completion {
    of(sentences.iter().map(|(text, triplets)| sentence(text, triplets)).collect())
}

/// A completion of these sentences.
fn of(sentences: Vec<Sentence>) -> Completion {
    let texts: Vec<&str> = sentences.iter().map(|sentence| sentence.text.as_str()).collect();
    let text = format!("<think>{}</think>", texts.join(" "));
    Completion { question: String::new(), golds: Vec::new(), answer: text.clone(), text, sentences }
}

/// A corpus in which exactly these queries can be asked, each written as it prints: `"Paris AND Peru"`.
#[must_use]
pub fn counts(known: &[(&str, u64)]) -> FakeCorpus {
    let known = known.iter().map(|&(query, count)| (query.to_owned(), Some(count))).collect();
    FakeCorpus { known, size: CorpusSize { tokens: None, documents: None } }
}

/// See [`counts`].
#[derive(Debug, Clone, PartialEq)]
pub struct FakeCorpus {
    known: BTreeMap<String, Option<u64>>,
    size: CorpusSize,
}

impl FakeCorpus {
    /// Adds a query that the corpus cannot answer.
    #[must_use]
    pub fn without(mut self, query: &str) -> Self {
        self.known.insert(query.to_owned(), None);
        self
    }

    /// A corpus of so many tokens and documents; without this, both are unknown.
    #[must_use]
    pub fn of_size(mut self, tokens: u64, documents: u64) -> Self {
        self.size = CorpusSize { tokens: Some(tokens), documents: Some(documents) };
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
    /// The index of the triplet that decided.
    pub triplet: Option<u32>,
    /// The rule's own words.
    pub note: Option<String>,
    /// Everything it asked for, in order, each once.
    pub asked: Vec<String>,
}

/// Calls `rule` as the host would, answering from `corpus` until it judges. The sentence is the only one of its completion.
///
/// # Panics
/// Where the rule asks for what `corpus` does not hold, or does what the host refuses.
#[must_use]
pub fn run<R: CompletionRule>(rule: &R, sentence: &Sentence, corpus: &FakeCorpus) -> Judged {
    run_completion(rule, &of(vec![sentence.clone()]), corpus).remove(0)
}

/// [`run`] on the sentences of one completion.
///
/// # Panics
/// As [`run`].
#[must_use]
pub fn run_completion<R: CompletionRule>(rule: &R, completion: &Completion, corpus: &FakeCorpus) -> Vec<Judged> {
    settle(rule, completion, corpus.size, |query| corpus.count(query))
}

/// What `rule` pays a sentence of one fact that occurs so often.
///
/// # Panics
/// As [`run`].
#[must_use]
pub fn reward_of<R: CompletionRule>(rule: &R, count: u64) -> Option<f32> {
    let rome = sentence("Rome is in Italy.", &[("Rome", "is in", "Italy")]);
    run(rule, &rome, &counts(&[("Rome AND Italy", count)])).reward
}

/// Calls `rule` until it asks nothing more.
fn settle<R: CompletionRule>(
    rule: &R,
    completion: &Completion,
    size: CorpusSize,
    answer: impl Fn(&Query) -> Count,
) -> Vec<Judged> {
    let sentences = &completion.sentences;
    let mut counts: Vec<Vec<Count>> = vec![Vec::new(); sentences.len()];
    let mut asked: Vec<Vec<Query>> = vec![Vec::new(); sentences.len()];
    for _ in 0..=limits::ROUNDS {
        let with_questions = counts.iter().zip(&asked);
        let corpora: Vec<Corpus> =
            with_questions.map(|(counts, asked)| Corpus::recorded(size, counts, asked)).collect();
        let outcomes = rule.judge(completion, &corpora);
        assert_eq!(outcomes.len(), sentences.len(), "a rule must give one outcome per sentence");
        if outcomes.iter().all(Result::is_ok) {
            let outcomes = outcomes.into_iter().flatten();
            return sentences.iter().zip(&asked).zip(outcomes).map(|((s, asked), o)| judged(s, asked, o)).collect();
        }
        for ((counts, asked), outcome) in counts.iter_mut().zip(&mut asked).zip(outcomes) {
            for query in outcome.err().into_iter().flat_map(|Ask(queries)| queries) {
                check_query(&query);
                counts.push(answer(&query));
                asked.push(query);
            }
            let (limit, got) = (limits::QUERIES_PER_SENTENCE, asked.len());
            assert!(got <= limit, "{got} queries for one sentence: at most {limit} are allowed");
        }
    }
    panic!("the rule still asks after {} rounds of answers", limits::ROUNDS);
}

fn check_query(query: &Query) {
    let (limit, words) = (limits::WORDS_PER_QUERY, query.words().count());
    assert!((1..=limit).contains(&words), "a query of {words} words: 1 to {limit} are allowed");
    let (limit, words) = (limits::WORDS_PER_CLAUSE, query.all_of.iter().map(Vec::len).max().unwrap_or(0));
    assert!(words <= limit, "a clause of {words} words: at most {limit} are allowed");
    let is_empty = query.all_of.iter().any(Vec::is_empty);
    assert!(!is_empty, "a clause without words, which nothing matches: {query:?}");
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

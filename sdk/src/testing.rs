//! Runs a rule natively: against answers given by hand, and ([`check()`]) against generated ones.
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

mod answers;
mod check;
mod responses;
mod rounds;

pub use answers::{FakeCorpus, counts};
pub use check::{check, check_with};
pub use responses::{check_responses, check_responses_with, response, run_response};

use crate::{
    Completion, CompletionRule, Corpus, CorpusSize, Credit, Judgement, Point, Reply, Request,
    Section, Sentence, Triplet, Verdict,
};

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
    Sentence {
        text: text.to_owned(),
        section: Section::Think,
        triplets: triplets.iter().map(triplet).collect(),
    }
}

/// A completion of these sentences, each a text and its triplets, all in one think block: no
/// question, no answer.
#[must_use]
pub fn completion(sentences: &[(&str, &[Parts])]) -> Completion {
    of(sentences.iter().map(|(text, triplets)| sentence(text, triplets)).collect())
}

/// A completion of these sentences.
fn of(sentences: Vec<Sentence>) -> Completion {
    let texts: Vec<&str> = sentences.iter().map(|sentence| sentence.text.as_str()).collect();
    let text = format!("<think>{}</think>", texts.join(" "));
    Completion {
        question: String::new(),
        golds: Vec::new(),
        title: None,
        evidence: Vec::new(),
        answer: text.clone(),
        text,
        sentences,
    }
}

/// What the host would record of one sentence.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// `None` where the rule abstained.
    pub reward: Option<f32>,
    /// Which tokens get it, where it is not every token of the sentence.
    pub credit: Option<Credit>,
    /// The count that decided.
    pub count: Option<u64>,
    /// The index of the triplet that decided.
    pub triplet: Option<u32>,
    /// The rule's own words.
    pub note: Option<String>,
    /// Everything it asked for, in order, each once.
    pub asked: Vec<String>,
}

/// Calls `rule` as the host would, answering from `corpus` until it judges. The sentence is the
/// only one of its completion.
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
pub fn run_completion<R: CompletionRule>(
    rule: &R,
    completion: &Completion,
    corpus: &FakeCorpus,
) -> Vec<Judged> {
    settle(rule, completion, corpus.size(), |request| corpus.answer(request))
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
    answer: impl Fn(&Request) -> Reply,
) -> Vec<Judged> {
    let sentences = &completion.sentences;
    let rules = rounds::Rules { asks: R::ASKS, questions: limits::QUESTIONS_PER_SENTENCE };
    let judge = |corpora: &[Corpus]| rule.judge(completion, corpora);
    let settled = rounds::settle(&rules, sentences.len(), size, judge, answer);
    sentences
        .iter()
        .zip(settled)
        .map(|(sentence, (judgement, asked))| judged(sentence, &asked, judgement))
        .collect()
}

fn judged(sentence: &Sentence, requests: &[Request], judgement: Judgement) -> Judged {
    let mut asked: Vec<String> = Vec::new();
    for request in requests.iter().map(Request::to_string) {
        if !asked.contains(&request) {
            asked.push(request);
        }
    }
    match judgement {
        Judgement::Abstain(note) => {
            Judged { reward: None, credit: None, count: None, triplet: None, note, asked }
        }
        Judgement::Score(Verdict { reward, credit, count, triplet, note }) => {
            assert!(reward.is_finite(), "the reward is {reward}: it must be finite");
            let triplets = sentence.triplets.len();
            let is_there = triplet.is_none_or(|place| (place as usize) < triplets);
            assert!(is_there, "the verdict rests on triplet {triplet:?} of {triplets}");
            if let Some(Credit::Points(points)) = &credit {
                check_points(points, reward, &sentence.text);
            }
            Judged { reward: Some(reward), credit, count, triplet, note, asked }
        }
    }
}

fn check_points(points: &[Point], reward: f32, text: &str) {
    let characters = text.chars().count();
    let is_there = points.iter().all(|point| (point.character as usize) < characters);
    assert!(
        is_there,
        "the verdict pays a character beyond the {characters} of the sentence: {points:?}"
    );
    let sum: f32 = points.iter().map(|point| point.reward).sum();
    assert!((sum - reward).abs() <= 1e-4, "the shares add up to {sum}, and the reward is {reward}");
}

//! Runs a rule natively: with given counts and replies, or ([`check()`]) on generated completions.
//!
//! ```
//! use corver_sdk::prelude::*;
//! use corver_sdk::testing::{counts, run, sentence};
//!
//! settings! { pub struct Seen {} }
//!
//! impl SentenceRule for Seen {
//!     fn score(&self, sentence: &Sentence, corpus: &Corpus) -> Result<Verdict, Pending> {
//!         first_fact(sentence, corpus, 1, |count| if count > 0 { 1.0 } else { -1.0 })
//!     }
//! }
//!
//! let paris = sentence("Paris is in Peru.", &[("Paris", "is in", "Peru")]);
//! assert_eq!(run(&Seen::default(), &paris, &counts(&[("Paris AND Peru", 0)])).reward, Some(-1.0));
//! corver_sdk::testing::check(&Seen::default(), -1.0..=1.0);
//! ```

mod check;
mod fake;
mod responses;
mod rounds;

pub use check::{check, check_with};
pub use fake::{FakeCorpus, counts};
pub use responses::{check_responses, check_responses_with, response, run_response};

use crate::rule::score_completion;
use crate::{
    Completion, CompletionRule, CorpusInfo, Credit, CreditKind, Reply, Request, Section, Sentence,
    TokenReward, Triplet, Verdict,
};

mod limits {
    include!("../wit/limits.rs");
}

/// Head, relation and tail.
pub type Parts<'a> = (&'a str, &'a str, &'a str);

/// The paper's example: “Mario Camerini directed Il Seduttore. The film starred Sophia Loren.”
pub const FILM: [Parts; 2] =
    [("Mario Camerini", "directed", "Il Seduttore"), ("Il Seduttore", "starred", "Sophia Loren")];
/// Query of the first fact of [`FILM`].
pub const DIRECTED: &str = "Mario AND Camerini AND Il AND Seduttore";
/// Query of the second fact of [`FILM`].
pub const STARRED: &str = "Il AND Seduttore AND Sophia AND Loren";

/// Returns a sentence of a think block with these triplets.
#[must_use]
pub fn sentence(text: &str, triplets: &[Parts]) -> Sentence {
    let triplets = triplets.iter().map(|&(head, relation, tail)| Triplet {
        head: head.to_owned(),
        relation: relation.to_owned(),
        tail: tail.to_owned(),
    });
    Sentence { text: text.to_owned(), section: Section::Think, triplets: triplets.collect() }
}

/// Returns a completion of these sentences, each a text with its triplets, in one think block. It
/// has no question and no answer block.
#[must_use]
pub fn completion(sentences: &[(&str, &[Parts])]) -> Completion {
    let sentences = sentences.iter().map(|(text, triplets)| sentence(text, triplets));
    completion_from(sentences.collect())
}

fn completion_from(sentences: Vec<Sentence>) -> Completion {
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

/// The result of a rule for one sentence, as the host would record it.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoredSentence {
    /// `None` if the rule abstained.
    pub reward: Option<f32>,
    /// `None` if every token of the sentence receives the reward.
    pub credit: Option<Credit>,
    /// The count that decided.
    pub count: Option<u64>,
    /// The index of the triplet that decided.
    pub triplet: Option<u32>,
    /// The rule's text for the trace.
    pub note: Option<String>,
    /// The rule's requests in order, without duplicates.
    pub requests: Vec<String>,
}

/// Runs `rule` on a sentence that is alone in its completion, with replies from `corpus`, until it
/// returns a verdict.
///
/// # Panics
/// Panics if the rule requests what `corpus` does not have, or breaks a limit of the host.
#[must_use]
pub fn run<R: CompletionRule>(
    rule: &R,
    sentence: &Sentence,
    corpus: &FakeCorpus,
) -> ScoredSentence {
    run_completion(rule, &completion_from(vec![sentence.clone()]), corpus).remove(0)
}

/// As [`run`], on the sentences of one completion.
///
/// # Panics
/// As [`run`].
#[must_use]
pub fn run_completion<R: CompletionRule>(
    rule: &R,
    completion: &Completion,
    corpus: &FakeCorpus,
) -> Vec<ScoredSentence> {
    score(rule, completion, corpus.info(), |request| corpus.reply_to(request))
}

/// Returns the reward of a sentence whose only fact has this count.
///
/// # Panics
/// As [`run`].
#[must_use]
pub fn reward_of<R: CompletionRule>(rule: &R, count: u64) -> Option<f32> {
    let rome = sentence("Rome is in Italy.", &[("Rome", "is in", "Italy")]);
    run(rule, &rome, &counts(&[("Rome AND Italy", count)])).reward
}

fn score<R: CompletionRule>(
    rule: &R,
    completion: &Completion,
    info: CorpusInfo,
    answer: impl Fn(&Request) -> Reply,
) -> Vec<ScoredSentence> {
    let allowed = rounds::Allowed {
        capabilities: R::REQUIRES,
        requests_per_subject: limits::REQUESTS_PER_SENTENCE,
    };
    let num_sentences = completion.sentences.len();
    let settled = rounds::run_rounds(
        &allowed,
        completion,
        num_sentences,
        info,
        |completion, corpora| score_completion(rule, completion, corpora),
        answer,
    );
    let mut scored = Vec::new();
    for (sentence, result) in completion.sentences.iter().zip(settled) {
        check_verdict(&result.outcome, sentence, R::CREDIT);
        scored.push(scored_sentence(result));
    }
    scored
}

fn scored_sentence(settled: rounds::Settled<Verdict>) -> ScoredSentence {
    let mut requests: Vec<String> = Vec::new();
    for request in settled.requests.iter().map(Request::to_string) {
        if !requests.contains(&request) {
            requests.push(request);
        }
    }
    let Verdict { reward, count, triplet, note, credit } = settled.outcome;
    ScoredSentence { reward, credit, count, triplet, note, requests }
}

fn check_verdict(verdict: &Verdict, sentence: &Sentence, credit: CreditKind) {
    let Some(reward) = verdict.reward else { return };
    assert!(reward.is_finite(), "the reward is {reward}: it must be finite");
    let num_triplets = sentence.triplets.len();
    if let Some(triplet) = verdict.triplet {
        assert!(
            (triplet as usize) < num_triplets,
            "the verdict names triplet {triplet} of {num_triplets}"
        );
    }
    let needed = match &verdict.credit {
        None => return,
        Some(Credit::AdvantageSign) => CreditKind::AdvantageSign,
        Some(Credit::TokenRewards(rewards)) => {
            check_token_rewards(rewards, reward, &sentence.text);
            CreditKind::TokenRewards
        }
    };
    assert_eq!(needed, credit, "the verdict's credit is not the rule's CREDIT");
}

fn check_token_rewards(rewards: &[TokenReward], total: f32, text: &str) {
    let characters = text.chars().count();
    assert!(
        rewards.iter().all(|part| (part.character as usize) < characters),
        "a token reward for a character beyond the {characters} of the sentence: {rewards:?}"
    );
    let sum: f32 = rewards.iter().map(|part| part.reward).sum();
    assert!(
        (sum - total).abs() <= 1e-4,
        "the token rewards add up to {sum}, and the reward is {total}"
    );
}

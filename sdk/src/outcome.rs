//! What a rule answers.

use crate::{Ask, Corpus, Credit, Point, Sentence, Tiers, Verdict};

/// A rule's answer for one sentence: a judgement, or the replies it still needs. `?` on
/// [`crate::Corpus::count`] makes the latter.
pub type Outcome = Result<Judgement, Ask>;

/// A final answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Judgement {
    /// A reward and why.
    Score(Verdict),
    /// Nothing to say, and why: the sentence earns 0.
    Abstain(Option<String>),
}

/// Rewards the sentence. The number must be finite as a 32-bit float, or the host refuses the whole
/// batch.
#[expect(
    clippy::missing_errors_doc,
    reason = "never an error: the type is what `SentenceRule::score` returns"
)]
pub fn verdict(reward: f64) -> Outcome {
    scored(reward as f32, None)
}

/// Rewards single tokens of the sentence: those that hold these characters of its text, counted
/// from 0. Shares of one token add up.
#[expect(
    clippy::missing_errors_doc,
    reason = "never an error: the type is what `SentenceRule::score` returns"
)]
pub fn points(shares: impl IntoIterator<Item = (usize, f64)>) -> Outcome {
    // A text from the host has fewer than 2³² characters.
    let point = |(character, reward): (usize, f64)| Point {
        character: character as u32,
        reward: reward as f32,
    };
    let points: Vec<Point> = shares.into_iter().map(point).collect();
    scored(points.iter().map(|given| given.reward).sum(), Some(Credit::Points(points)))
}

/// Says whether the sentence is right. Nobody earns anything: after the advantages were normalised,
/// those of the sentence's tokens become positive where it is right, and negative where it is
/// wrong.
#[expect(
    clippy::missing_errors_doc,
    reason = "never an error: the type is what `SentenceRule::score` returns"
)]
pub fn label(is_right: bool) -> Outcome {
    scored(if is_right { 1.0 } else { -1.0 }, Some(Credit::Sign))
}

fn scored(reward: f32, credit: Option<Credit>) -> Outcome {
    Ok(Judgement::Score(Verdict { reward, credit, count: None, triplet: None, note: None }))
}

/// Says nothing about the sentence, which then earns 0; `why` appears in the trace.
#[expect(
    clippy::missing_errors_doc,
    reason = "never an error: the type is what `SentenceRule::score` returns"
)]
pub fn abstain(why: &str) -> Outcome {
    Ok(Judgement::Abstain(Some(why.to_owned())))
}

/// What the rule First does, with another map from the count to the reward: the first valid triplet
/// decides, a count that the corpus does not know earns 0, and counts from `enough` on are not told
/// apart.
///
/// # Errors
/// [`Ask`] where the count has not been looked up yet.
pub fn first_fact(
    sentence: &Sentence,
    corpus: &Corpus,
    enough: u64,
    reward: impl Fn(u64) -> f64,
) -> Outcome {
    let Some((index, triplet)) = sentence.first_valid_triplet() else {
        return abstain("no valid triplet");
    };
    let Some(query) = triplet.word_query() else { return abstain("fewer than two content words") };
    let count = corpus.count(query.enough(enough))?;
    verdict(count.map_or(0.0, |count| reward(count.min(enough)))).because(index, count)
}

/// The mean of what these facts earn, each a triplet's index and its count, as
/// [`Corpus::count_facts`] gives them. No single count decides; the trace shows the smallest.
/// Abstains where there are none.
#[expect(
    clippy::missing_errors_doc,
    reason = "never an error: the type is what `SentenceRule::score` returns"
)]
pub fn mean_fact(facts: &[(usize, u64)], tiers: &Tiers) -> Outcome {
    let Some(&(index, least)) = facts.iter().min_by_key(|&&(_, count)| count) else {
        return abstain("no fact that can be counted");
    };
    let total: f64 = facts.iter().map(|&(_, count)| tiers.reward(Some(count))).sum();
    verdict(total / facts.len() as f64)
        .because(index, Some(least))
        .note(&format!("mean of {}", facts.len()))
}

/// Adds to a verdict what it rests on. Leaves abstentions and asks as they are.
#[expect(clippy::missing_errors_doc, reason = "an ask stays an ask; no error of their own")]
pub trait OutcomeExt {
    /// The triplet, by its index in the sentence, and the count that decided.
    fn because(self, triplet: usize, count: Option<u64>) -> Outcome;

    /// Words for the trace.
    fn note(self, note: &str) -> Outcome;
}

impl OutcomeExt for Outcome {
    fn because(self, triplet: usize, count: Option<u64>) -> Outcome {
        // A list from the host has fewer than 2³² entries.
        self.map(|judgement| {
            judgement
                .with(|verdict| (verdict.triplet, verdict.count) = (Some(triplet as u32), count))
        })
    }

    fn note(self, note: &str) -> Outcome {
        self.map(|judgement| judgement.with(|verdict| verdict.note = Some(note.to_owned())))
    }
}

impl Judgement {
    fn with(mut self, change: impl FnOnce(&mut Verdict)) -> Self {
        if let Self::Score(verdict) = &mut self {
            change(verdict);
        }
        self
    }
}

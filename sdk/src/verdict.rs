//! Verdicts, and the two that many rules share.

use crate::{Corpus, Credit, Grade, Pending, Sentence, Tiers, TokenReward};

/// A rule's decision on one sentence: a reward with its reason, or an abstention.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// `None`: the rule abstains.
    pub(crate) reward: Option<f32>,
    pub(crate) count: Option<u64>,
    pub(crate) triplet: Option<u32>,
    pub(crate) note: Option<String>,
    pub(crate) credit: Option<Credit>,
}

impl Verdict {
    /// Rewards every token of the sentence. The host refuses the batch if the number is not finite
    /// as a 32-bit float.
    #[must_use]
    pub fn new(reward: f64) -> Self {
        Self { reward: Some(reward as f32), count: None, triplet: None, note: None, credit: None }
    }

    /// Rewards single tokens: those that hold these characters of the sentence's text, counted from
    /// 0. Several rewards of one token add up. The rule's `CREDIT` is [`crate::CreditKind::TokenRewards`].
    #[must_use]
    pub fn token_rewards(rewards: impl IntoIterator<Item = (usize, f64)>) -> Self {
        let mut sum = 0.0;
        let mut parts = Vec::new();
        for (character, reward) in rewards {
            let reward = reward as f32;
            sum += reward;
            // A text from the host has fewer than 2³² characters.
            parts.push(TokenReward { character: character as u32, reward });
        }
        Self { reward: Some(sum), credit: Some(Credit::TokenRewards(parts)), ..Self::new(0.0) }
    }

    /// Sets the sign of advantages: positive for the tokens of a right sentence, negative for those
    /// of a wrong one, after normalisation. No token receives a reward. The rule's `CREDIT` is
    /// [`crate::CreditKind::AdvantageSign`].
    #[must_use]
    pub fn advantage_sign(is_right: bool) -> Self {
        let sign = if is_right { 1.0 } else { -1.0 };
        Self { credit: Some(Credit::AdvantageSign), ..Self::new(sign) }
    }

    /// Gives no verdict: the sentence's reward is 0. The reason appears in the trace.
    #[must_use]
    pub fn abstain(reason: &str) -> Self {
        Self { reward: None, note: Some(reason.to_owned()), ..Self::new(0.0) }
    }

    /// Names the triplet, by its index in the sentence, and the count that decided. An abstention
    /// stays as it is.
    #[must_use]
    pub fn because(self, triplet: usize, count: Option<u64>) -> Self {
        if self.reward.is_none() {
            return self;
        }
        // A list from the host has fewer than 2³² entries.
        Self { triplet: Some(triplet as u32), count, ..self }
    }

    /// Adds a text for the trace. An abstention keeps its reason.
    #[must_use]
    pub fn note(self, note: &str) -> Self {
        if self.reward.is_none() {
            return self;
        }
        Self { note: Some(note.to_owned()), ..self }
    }
}

impl Grade {
    /// Rewards the completion. The label is one word for it, such as GOOD or BROKEN. The host
    /// refuses the batch if the number is not finite as a 32-bit float.
    #[must_use]
    pub fn new(reward: f64, label: &str) -> Self {
        Self { reward: reward as f32, label: label.to_owned(), note: None }
    }

    /// Adds a text for the trace.
    #[must_use]
    pub fn note(self, note: &str) -> Self {
        Self { note: Some(note.to_owned()), ..self }
    }
}

/// Scores a sentence as the rule First does, with another map from count to reward: the first valid
/// triplet decides, and an unknown count has the reward 0. Counts of `limit` and more have one
/// reward.
///
/// # Errors
/// [`Pending`] if the count has no reply yet.
pub fn first_fact(
    sentence: &Sentence,
    corpus: &Corpus,
    limit: u64,
    reward: impl Fn(u64) -> f64,
) -> Result<Verdict, Pending> {
    let Some((index, triplet)) = sentence.first_valid_triplet() else {
        return Ok(Verdict::abstain("no valid triplet"));
    };
    let Some(query) = triplet.word_query() else {
        return Ok(Verdict::abstain("fewer than two content words"));
    };
    let count = corpus.count(query.limit(limit))?;
    let reward = count.map_or(0.0, |count| reward(count.min(limit)));
    Ok(Verdict::new(reward).because(index, count))
}

/// Returns the mean of the facts' rewards, or abstains without facts. Each fact is a triplet's
/// index with its count, as [`Corpus::count_facts`] returns them. The trace shows the smallest
/// count.
#[must_use]
pub fn mean_fact(facts: &[(usize, u64)], tiers: &Tiers) -> Verdict {
    let Some(&(index, lowest)) = facts.iter().min_by_key(|&&(_, count)| count) else {
        return Verdict::abstain("no fact that can be counted");
    };
    let total: f64 = facts.iter().map(|&(_, count)| tiers.reward(Some(count))).sum();
    Verdict::new(total / facts.len() as f64)
        .because(index, Some(lowest))
        .note(&format!("mean of {}", facts.len()))
}

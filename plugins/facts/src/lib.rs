//! Facts: every distinct supported fact of a completion adds a bonus, which shrinks with their
//! number.
//!
//! A rule that rewards precision alone makes a policy say less (paper, “Why Min underperforms”).
use std::collections::BTreeSet;

use corver_sdk::prelude::*;
use corver_sdk::probability;

settings! {
    /// Rewards each distinct supported fact of a completion, and penalises sentences with a fact that
    /// never occurs.
    pub struct Facts {
        /// Lowest count of a supported fact, 1 or more.
        pub support: u64 = 5,
        /// Reward of the first supported fact of a completion.
        pub bonus: f64 = 0.2,
        /// Reward of each further one, as a share of the one before, 0 to 1. Their sum is less
        /// than `bonus` / (1 − `decay`).
        pub decay: f64 = 0.8,
        /// Reward of a sentence with a fact whose count is 0. Its other facts add nothing.
        pub unsupported: f64 = -0.3,
    }
}

/// Facts of a completion so far.
#[derive(Default)]
struct Stated {
    /// Content words of each fact, in lower case.
    facts: BTreeSet<BTreeSet<String>>,
    /// Number of distinct supported facts.
    supported: i32,
}

impl Facts {
    fn score(
        &self,
        sentence: &Sentence,
        corpus: &Corpus,
        stated: &mut Stated,
    ) -> Result<Verdict, Pending> {
        let facts = corpus.count_facts(sentence, self.support)?;
        let Some(&(index, lowest)) = facts.iter().min_by_key(|&&(_, count)| count) else {
            return Ok(Verdict::abstain("no fact that can be counted"));
        };
        if lowest == 0 {
            return Ok(Verdict::new(self.unsupported).because(index, Some(0)));
        }
        let mut reward = 0.0;
        for (fact, count) in facts {
            let Some(query) = sentence.triplets[fact].word_query() else { continue };
            let is_new = stated.facts.insert(query.words().map(str::to_lowercase).collect());
            if is_new && count >= self.support {
                reward += self.bonus * self.decay.powi(stated.supported);
                stated.supported += 1;
            }
        }
        let note = format!("{} supported so far", stated.supported);
        Ok(Verdict::new(reward).because(index, Some(lowest)).note(&note))
    }
}

impl CompletionRule for Facts {
    fn score_sentences(
        &self,
        _completion: &Completion,
        contexts: &[SentenceContext],
    ) -> Vec<Result<Verdict, Pending>> {
        let mut stated = Stated::default();
        let mut outcomes = Vec::new();
        for SentenceContext { sentence, corpus } in contexts {
            outcomes.push(self.score(sentence, corpus, &mut stated));
        }
        outcomes
    }

    fn validate(&self) -> Result<(), String> {
        if self.support == 0 {
            return Err("`support` must be 1 or more; got 0".to_owned());
        }
        finite("bonus", self.bonus)?;
        finite("unsupported", self.unsupported)?;
        probability("decay", self.decay)
    }
}

corver_sdk::export!(Facts);

#[cfg(test)]
mod tests {
    use super::*;
    use corver_sdk::configured;
    use corver_sdk::testing::{Parts, check, completion, counts, run_completion};

    const ROME: Parts = ("Rome", "is in", "Italy");
    const AGAIN: Parts = ("ITALY", "is the country of", "rome");
    const OSLO: Parts = ("Oslo", "is in", "Norway");
    const LIMA: Parts = ("Lima", "is in", "Italy");
    const BARI: Parts = ("Bari", "is in", "Italy");

    fn rewards(sentences: &[&[Parts]]) -> Vec<Option<f32>> {
        let rule: Facts = configured(r#"{"bonus": 1, "decay": 0.5}"#).unwrap();
        let corpus = counts(&[
            ("Rome AND Italy", 99),
            ("ITALY AND rome", 99),
            ("Oslo AND Norway", 5),
            ("Lima AND Italy", 0),
            ("Bari AND Italy", 4),
        ]);
        let texts: Vec<(&str, &[Parts])> =
            sentences.iter().map(|&facts| ("It is so.", facts)).collect();
        let scored = run_completion(&rule, &completion(&texts), &corpus);
        scored.into_iter().map(|scored| scored.reward).collect()
    }

    #[test]
    fn distinct_supported_facts_earn_shrinking_bonus() {
        assert_eq!(
            rewards(&[&[ROME], &[], &[AGAIN], &[OSLO], &[BARI]]),
            [Some(1.0), None, Some(0.0), Some(0.5), Some(0.0)]
        );
        assert_eq!(rewards(&[&[ROME, OSLO, AGAIN]]), [Some(1.5)]);
    }

    #[test]
    fn sentence_with_unsupported_fact_earns_penalty_alone() {
        assert_eq!(
            rewards(&[&[ROME, LIMA], &[LIMA], &[ROME]]),
            [Some(-0.3), Some(-0.3), Some(1.0)]
        );
    }

    #[test]
    fn invalid_settings_are_rejected() {
        for settings in [r#"{"support": 0}"#, r#"{"decay": 1.5}"#, r#"{"bonus": 1e39}"#] {
            assert!(configured::<Facts>(settings).is_err(), "{settings}");
        }
    }

    #[test]
    fn rewards_stay_in_range_for_any_completion() {
        check(&Facts::default(), -0.3..=1.0);
    }
}

//! MinByLength: as Min, less the average reward of the minimum of as many distinct facts.
//!
//! Under Min every further fact can only lower the reward, so a policy learns to say less (paper,
//! “Why Min underperforms”). Here a sentence is compared with others of its number of facts: for a
//! policy whose facts fall into the tiers as in `reference`, the mean reward is 0 for each number of
//! facts, none included; a better policy receives more with more facts.
use std::collections::BTreeSet;

use corver_sdk::prelude::*;

settings! {
    /// Rewards a sentence by the smallest count of its valid triplets, compared with sentences of as
    /// many distinct ones.
    pub struct MinByLength {
        /// From the count to the reward.
        pub tiers: Tiers = Tiers::default(),
        /// The share of facts in each tier, lowest first, of the policy that a sentence is compared
        /// with. Adds up to 1.
        pub reference: Vec<f64> = vec![0.25; 4],
    }
}

impl MinByLength {
    /// Returns the mean reward of the least attested of `facts` facts drawn from the reference.
    fn expected(&self, facts: usize) -> f64 {
        let mut at_least = 1.0_f64; // the share of facts in this tier or a higher one
        let tiers = self.reference.iter().zip(self.tiers.rewards());
        tiers.fold(0.0, |expected, (share, reward)| {
            // All of n are at least here with probability at_leastⁿ.
            let higher = (at_least - share).max(0.0);
            let here = at_least.powi(facts as i32) - higher.powi(facts as i32);
            at_least = higher;
            expected + here * reward
        })
    }
}

impl SentenceRule for MinByLength {
    fn score(&self, sentence: &Sentence, corpus: &Corpus) -> Result<Verdict, Pending> {
        let facts = corpus.count_facts(sentence, self.tiers.top())?;
        let Some(&(index, count)) = facts.iter().min_by_key(|&&(_, count)| count) else {
            return Ok(Verdict::abstain("no fact that can be counted"));
        };
        let num_facts = count_distinct(sentence, &facts);
        let reward = self.tiers.reward(Some(count)) - self.expected(num_facts);
        let note = format!("least of {num_facts}");
        Ok(Verdict::new(reward).because(index, Some(count)).note(&note))
    }

    fn validate(&self) -> Result<(), String> {
        let tiers = self.tiers.rewards().len();
        if self.reference.len() != tiers {
            return Err(format!(
                "`reference` must have {tiers} shares, one for each tier; got {}",
                self.reference.len()
            ));
        }
        let total: f64 = self.reference.iter().sum();
        if self.reference.iter().any(|share| *share < 0.0) || (total - 1.0).abs() > 1e-6 {
            return Err(format!(
                "`reference` must be shares that add up to 1; got {:?}",
                self.reference
            ));
        }
        Ok(())
    }
}

/// Returns the number of facts that differ in their content words, whatever the order and case.
fn count_distinct(sentence: &Sentence, facts: &[(usize, u64)]) -> usize {
    let mut distinct: BTreeSet<BTreeSet<String>> = BTreeSet::new();
    for &(index, _) in facts {
        if let Some(query) = sentence.triplets[index].word_query() {
            distinct.insert(query.words().map(str::to_lowercase).collect());
        }
    }
    distinct.len()
}

corver_sdk::export!(MinByLength);

#[cfg(test)]
mod tests {
    use super::*;
    use corver_sdk::configured;
    use corver_sdk::testing::{check, counts, run, sentence};

    /// What a sentence of these counts earns.
    fn paid(rule: &MinByLength, facts: &[u64]) -> f64 {
        let places: Vec<String> = (0..facts.len()).map(|i| format!("Place{i}")).collect();
        let triplets: Vec<(&str, &str, &str)> =
            places.iter().map(|place| ("Rome", "near", place.as_str())).collect();
        let queries: Vec<String> = places.iter().map(|place| format!("Rome AND {place}")).collect();
        let known: Vec<(&str, u64)> =
            queries.iter().map(String::as_str).zip(facts.iter().copied()).collect();
        f64::from(run(rule, &sentence("Rome is near.", &triplets), &counts(&known)).reward.unwrap())
    }

    #[test]
    fn reference_triplets_average_to_zero_reward() {
        let rule = MinByLength::default();
        let tiers = [0, 1, 5, 20]; // one count of each tier, equally likely
        let one: f64 = tiers.iter().map(|&a| paid(&rule, &[a])).sum();
        let two: f64 = tiers.iter().flat_map(|&a| tiers.map(|b| paid(&rule, &[a, b]))).sum();
        assert!(one.abs() < 1e-6 && two.abs() < 1e-6, "{one} {two}");
    }

    #[test]
    fn more_supported_triplets_raise_reward() {
        let rule = MinByLength::default();
        let attested: Vec<f64> = (1..6).map(|n| paid(&rule, &vec![20; n])).collect();
        assert!(attested.is_sorted_by(|a, b| a < b), "{attested:?}");
        assert!((attested[0] - 0.175).abs() < 1e-6, "0.1 against a mean of -0.075");
        assert!(paid(&rule, &[20, 0]) < paid(&rule, &[20, 20]), "the least attested decides");
    }

    #[test]
    fn repeated_fact_counts_once() {
        let facts = [("Rome", "in", "Italy"), ("ITALY", "has", "rome"), ("Rome", "in", "Italy")];
        let corpus = counts(&[("Rome AND Italy", 20), ("ITALY AND rome", 20)]);
        let score = |stated: usize| {
            let text = sentence("Rome is in Italy.", &facts[..stated]);
            run(&MinByLength::default(), &text, &corpus)
        };
        assert_eq!([2, 3].map(|stated| score(stated).reward), [score(1).reward; 2]);
        assert_eq!(score(3).note.as_deref(), Some("least of 1"));
    }

    #[test]
    fn single_tier_reference_reduces_to_min() {
        let rule = configured(r#"{"reference": [0, 0, 1, 0]}"#).unwrap();
        assert_eq!(
            [paid(&rule, &[0, 20]), paid(&rule, &[20, 20])].map(|reward| reward as f32),
            [-0.3, 0.1]
        );
    }

    #[test]
    fn invalid_settings_are_rejected() {
        let error = |settings| configured::<MinByLength>(settings).unwrap_err();
        assert!(error(r#"{"reference": [1]}"#).contains("must have 4 shares"));
        assert!(error(r#"{"reference": [1, 1, 0, 0]}"#).contains("add up to 1"));
        assert!(error(r#"{"reference": [-1, 2, 0, 0]}"#).contains("add up to 1"));
    }

    #[test]
    fn rewards_stay_in_range_for_any_completion() {
        check(&MinByLength::default(), -0.225..=0.4);
    }
}

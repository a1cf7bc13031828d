//! Linear: as First, but the reward rises with the count along a straight line.
use std::num::NonZeroU64;

use corver_sdk::prelude::*;

settings! {
    /// Rewards a sentence by the count of its first valid triplet, along a straight line.
    pub struct Linear {
        /// Reward of a count of 0.
        pub zero: f64 = -0.3,
        /// Reward of counts from `full`.
        pub most: f64 = 0.1,
        /// Lowest count with the full reward.
        pub full: NonZeroU64 = NonZeroU64::new(20).unwrap(),
    }
}

impl SentenceRule for Linear {
    fn score(&self, sentence: &Sentence, corpus: &Corpus) -> Result<Verdict, Pending> {
        let full = self.full.get();
        first_fact(sentence, corpus, full, |count| {
            let share = count as f64 / full as f64;
            self.zero * (1.0 - share) + self.most * share
        })
    }

    fn validate(&self) -> Result<(), String> {
        finite("zero", self.zero)?;
        finite("most", self.most)
    }
}

corver_sdk::export!(Linear);

#[cfg(test)]
mod tests {
    use super::*;
    use corver_sdk::configured;
    use corver_sdk::testing::{check, reward_of};

    #[test]
    fn reward_grows_linearly_with_count() {
        let rewards = [0, 5, 10, 15, 20, 21, u64::MAX]
            .map(|count| reward_of(&Linear::default(), count).unwrap());
        let expected = [-0.3_f32, -0.2, -0.1, 0.0, 0.1, 0.1, 0.1];
        assert!(
            rewards.iter().zip(expected).all(|(got, expected)| (got - expected).abs() < 1e-6),
            "{rewards:?}"
        );
        let steep: Linear = configured(r#"{"zero": -1, "most": 1, "full": 2}"#).unwrap();
        assert_eq!([0, 1, 2].map(|count| reward_of(&steep, count)), [-1.0, 0.0, 1.0].map(Some));
    }

    #[test]
    fn invalid_settings_are_rejected() {
        let error = configured::<Linear>(r#"{"full": 0}"#).unwrap_err();
        assert!(error.contains("full") && error.contains("nonzero"), "{error}");
        assert_eq!(
            configured::<Linear>(r#"{"most": 1e39}"#).unwrap_err(),
            "`most` must be a finite 32-bit number; got 1e39"
        );
    }

    #[test]
    fn rewards_stay_in_range_for_any_completion() {
        check(&Linear::default(), -0.3..=0.1);
    }
}

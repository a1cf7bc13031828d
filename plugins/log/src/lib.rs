//! Log: as First, but the reward rises with the logarithm of the count.
use std::num::NonZeroU64;

use corver_sdk::prelude::*;

settings! {
    /// Rewards a sentence by the logarithm of the count of its first valid triplet.
    pub struct Log {
        /// Reward of a count of 0.
        pub zero: f64 = -0.3,
        /// Reward of counts from `full`.
        pub most: f64 = 0.1,
        /// Lowest count with the full reward.
        pub full: NonZeroU64 = NonZeroU64::new(20).unwrap(),
    }
}

impl SentenceRule for Log {
    fn score(&self, sentence: &Sentence, corpus: &Corpus) -> Result<Verdict, Pending> {
        let full = self.full.get();
        first_fact(sentence, corpus, full, |count| {
            let share = (count as f64).ln_1p() / (full as f64).ln_1p();
            self.zero * (1.0 - share) + self.most * share
        })
    }

    fn validate(&self) -> Result<(), String> {
        finite("zero", self.zero)?;
        finite("most", self.most)
    }
}

corver_sdk::export!(Log);

#[cfg(test)]
mod tests {
    use super::*;
    use corver_sdk::configured;
    use corver_sdk::testing::{check, reward_of};

    #[test]
    fn reward_grows_logarithmically_with_count() {
        // 1 + count doubles at each step.
        let rule: Log = configured(r#"{"zero": -0.5, "most": 0.5, "full": 15}"#).unwrap();
        let rewards = [0, 1, 3, 7, 15, 16, u64::MAX].map(|count| reward_of(&rule, count));
        assert_eq!(rewards, [-0.5, -0.25, 0.0, 0.25, 0.5, 0.5, 0.5].map(Some));
    }

    #[test]
    fn default_log_map_matches_paper_end_points() {
        let [none, eight, nine, full, more] =
            [0, 8, 9, 20, 21].map(|count| reward_of(&Log::default(), count).unwrap());
        assert_eq!([none, full, more], [-0.3, 0.1, 0.1]);
        assert!(eight < 0.0 && nine > 0.0, "neutral where the paper's map is");
    }

    #[test]
    fn rewards_stay_in_range_for_any_completion() {
        check(&Log::default(), -0.3..=0.1);
    }
}

//! Sigmoid: as First, but the reward has one smooth step around a count.
use corver_sdk::prelude::*;

settings! {
    /// Rewards a sentence by a logistic curve over the logarithm of the count of its first valid
    /// triplet.
    pub struct Sigmoid {
        /// Limit of the reward for low counts.
        pub low: f64 = -0.3,
        /// Limit of the reward for high counts.
        pub high: f64 = 0.1,
        /// Count with the mean of the two rewards.
        pub midpoint: u64 = 5,
        /// Steepness of the step; above 0.
        pub steepness: f64 = 2.0,
        /// Counts of this number and more have one reward.
        pub ceiling: u64 = 1_000,
    }
}

impl SentenceRule for Sigmoid {
    fn score(&self, sentence: &Sentence, corpus: &Corpus) -> Result<Verdict, Pending> {
        first_fact(sentence, corpus, self.ceiling, |count| {
            // 1 / (1 + exp(−steepness · (ln(1 + count) − ln(1 + midpoint)))).
            let odds = ((1.0 + count as f64) / (1.0 + self.midpoint as f64)).powf(self.steepness);
            let share = 1.0 / (1.0 + 1.0 / odds);
            self.low * (1.0 - share) + self.high * share
        })
    }

    fn validate(&self) -> Result<(), String> {
        finite("low", self.low)?;
        finite("high", self.high)?;
        if self.steepness > 0.0 {
            Ok(())
        } else {
            Err(format!("`steepness` must be above 0; got {}", self.steepness))
        }
    }
}

corver_sdk::export!(Sigmoid);

#[cfg(test)]
mod tests {
    use super::*;
    use corver_sdk::configured;
    use corver_sdk::testing::{check, reward_of};

    #[test]
    fn reward_at_midpoint_is_halfway() {
        let rule: Sigmoid =
            configured(r#"{"low": -1, "high": 1, "midpoint": 7, "steepness": 1}"#).unwrap();
        // Odds of 1 + count against 8.
        assert_eq!([7, 23].map(|count| reward_of(&rule, count)), [Some(0.0), Some(0.5)]);
        assert!((reward_of(&rule, 1).unwrap() + 0.6).abs() < 1e-6);
        let rewards = [0, 1, 4, 5, 6, 19, 20, 1_000]
            .map(|count| reward_of(&Sigmoid::default(), count).unwrap());
        assert!(
            rewards.is_sorted_by(|a, b| a < b) && rewards[0] < -0.28 && rewards[7] > 0.099,
            "{rewards:?}"
        );
    }

    #[test]
    fn extreme_settings_stay_finite() {
        let step: Sigmoid =
            configured(r#"{"steepness": 1e300, "midpoint": 18446744073709551615}"#).unwrap();
        check(&step, -0.3..=0.1);
        assert_eq!(reward_of(&step, 4), Some(-0.3));
        let error = configured::<Sigmoid>(r#"{"steepness": 0}"#).unwrap_err();
        assert_eq!(error, "`steepness` must be above 0; got 0");
    }

    #[test]
    fn rewards_stay_in_range_for_any_completion() {
        check(&Sigmoid::default(), -0.3..=0.1);
    }
}

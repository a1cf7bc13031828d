//! Calibrated: as First, but the reward comes from labels: the share of correct sentences among those
//! with such a count.
use corver_sdk::prelude::*;

settings! {
    /// Rewards a sentence by P(correct) of labelled sentences with the count of its first valid triplet.
    pub struct Calibrated {
        /// Labelled sentences, a row for each range of counts: its lowest count, its correct
        /// sentences, all its sentences. The first row begins at 0, the others ascend. The default is
        /// the paper's, of 700 sentences.
        pub labels: Vec<(u64, u64, u64)> = vec![(0, 48, 200), (1, 53, 100), (5, 70, 100), (10, 73, 100), (20, 162, 200)],
        /// Probability with the reward 0; `null`: the share of all labelled sentences.
        pub centre: Option<f64> = None,
        /// Reward per unit of probability above the centre.
        pub scale: f64 = 1.0,
        /// Standard errors of the Wilson interval whose lower end replaces the share: 1.96 is 95 %; 0
        /// uses the share itself.
        pub z: f64 = 0.0,
    }
}

impl Calibrated {
    /// Returns the lower end of the Wilson interval (Wilson 1927); the share itself if `z` is 0.
    fn probability(&self, correct: u64, of: u64) -> f64 {
        let n = of as f64;
        let share = correct as f64 / n;
        let z2 = self.z * self.z;
        let margin = self.z * (share * (1.0 - share) / n + z2 / (4.0 * n * n)).sqrt();
        (share + z2 / (2.0 * n) - margin) / (1.0 + z2 / n)
    }

    fn centre(&self) -> f64 {
        let sum = |number: fn(&(u64, u64, u64)) -> u64| {
            self.labels.iter().map(|row| number(row) as f64).sum::<f64>()
        };
        self.centre.unwrap_or_else(|| sum(|row| row.1) / sum(|row| row.2))
    }

    fn reward(&self, count: u64) -> f64 {
        let row = self.labels.iter().rfind(|row| count >= row.0);
        row.map_or(0.0, |&(_, correct, of)| {
            self.scale * (self.probability(correct, of) - self.centre())
        })
    }
}

impl SentenceRule for Calibrated {
    fn score(&self, sentence: &Sentence, corpus: &Corpus) -> Result<Verdict, Pending> {
        let last = self.labels.last().map_or(0, |row| row.0);
        first_fact(sentence, corpus, last, |count| self.reward(count))
    }

    fn validate(&self) -> Result<(), String> {
        let ascending = self.labels.first().is_some_and(|row| row.0 == 0)
            && self.labels.is_sorted_by(|a, b| a.0 < b.0);
        if !ascending {
            return Err(format!(
                "`labels` must begin at a count of 0 and ascend; got {:?}",
                self.labels
            ));
        }
        if let Some(row) = self.labels.iter().find(|row| row.1 > row.2 || row.2 == 0) {
            return Err(format!("`labels`: {} correct of {} sentences", row.1, row.2));
        }
        if !(self.z.is_finite() && self.z >= 0.0) {
            return Err(format!("`z` must be 0 or above; got {}", self.z));
        }
        finite("scale", self.scale)?;
        self.labels.iter().try_for_each(|row| finite("scale", self.reward(row.0)))
    }
}

corver_sdk::export!(Calibrated);

#[cfg(test)]
mod tests {
    use super::*;
    use corver_sdk::configured;
    use corver_sdk::testing::{check, reward_of};

    fn rome(settings: &str, count: u64) -> f32 {
        reward_of(&configured::<Calibrated>(settings).unwrap(), count).unwrap()
    }

    #[test]
    fn rewards_match_shares_of_paper_labels() {
        let shares =
            [0, 1, 4, 5, 9, 10, 19, 20, u64::MAX].map(|count| rome(r#"{"centre": 0}"#, count));
        assert_eq!(shares, [0.24, 0.53, 0.53, 0.7, 0.7, 0.73, 0.73, 0.81, 0.81]);
    }

    #[test]
    fn default_centre_is_share_of_all_labels() {
        // 406 of 700 sentences were correct.
        assert_eq!([0, 20].map(|count| rome("{}", count)), [-0.34, 0.23]);
        assert_eq!(rome(r#"{"centre": 0.7, "scale": 2}"#, 5), 0.0);
    }

    #[test]
    fn small_ranges_use_wilson_lower_bound() {
        // The paper's table of Wilson intervals.
        let percent =
            |count| (rome(r#"{"centre": 0, "z": 1.959964}"#, count) * 1000.0).round() / 10.0;
        assert_eq!([0, 1, 5, 10, 20].map(percent), [18.6, 43.3, 60.4, 63.6, 75.0]);
    }

    #[test]
    fn invalid_settings_are_rejected() {
        let error = |settings| configured::<Calibrated>(settings).unwrap_err();
        assert!(error(r#"{"labels": []}"#).contains("must begin at a count of 0"));
        assert!(error(r#"{"labels": [[0, 1, 2], [0, 1, 2]]}"#).contains("ascend"));
        assert_eq!(error(r#"{"labels": [[0, 3, 2]]}"#), "`labels`: 3 correct of 2 sentences");
        assert_eq!(error(r#"{"labels": [[0, 0, 0]]}"#), "`labels`: 0 correct of 0 sentences");
        assert!(error(r#"{"z": -1}"#).contains("`z` must be 0 or above"));
        assert!(error(r#"{"scale": 1e38, "centre": 1e9}"#).contains("`scale` must be a finite"));
    }

    #[test]
    fn rewards_stay_in_range_for_any_completion() {
        check(&Calibrated::default(), -0.341..=0.231);
    }
}

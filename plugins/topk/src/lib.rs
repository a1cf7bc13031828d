//! TopK: the mean reward of the k best attested facts, between Max (k = 1) and Mean (large k).
use std::num::NonZeroUsize;

use corver_sdk::prelude::*;

settings! {
    /// Rewards a sentence with the mean reward of its best attested valid triplets.
    pub struct TopK {
        /// Number of facts, best attested first; 1 or more.
        pub k: NonZeroUsize = NonZeroUsize::new(2).unwrap(),
        /// From the count to the reward.
        pub tiers: Tiers = Tiers::default(),
    }
}

impl SentenceRule for TopK {
    fn score(&self, sentence: &Sentence, corpus: &Corpus) -> Result<Verdict, Pending> {
        let mut facts = corpus.count_facts(sentence, self.tiers.top())?;
        facts.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        facts.truncate(self.k.get());
        Ok(mean_fact(&facts, &self.tiers))
    }
}

corver_sdk::export!(TopK);

#[cfg(test)]
mod tests {
    use super::*;
    use corver_sdk::configured;
    use corver_sdk::testing::{check, counts, run, sentence};

    #[test]
    fn highest_k_triplet_rewards_are_averaged() {
        let facts = [("Rome", "in", "Italy"), ("Rome", "in", "Peru"), ("Rome", "in", "Lazio")];
        let text = sentence("Rome lies in Italy, in Peru and in Lazio.", &facts);
        let corpus =
            counts(&[("Rome AND Italy", 900), ("Rome AND Peru", 0), ("Rome AND Lazio", 7)]);
        let score = |k: usize| {
            run(&configured::<TopK>(&format!(r#"{{"k": {k}}}"#)).unwrap(), &text, &corpus)
        };
        assert_eq!([1, 2].map(|k| score(k).reward), [Some(0.1), Some(0.05)]);
        assert!((score(3).reward.unwrap() + 0.2 / 3.0).abs() < 1e-7);
        assert_eq!(score(3), score(9), "there are no more than three");
        assert_eq!((score(2).count, score(2).triplet), (Some(7), Some(2)));
        assert!(configured::<TopK>(r#"{"k": 0}"#).unwrap_err().contains("nonzero"));
    }

    #[test]
    fn rewards_stay_in_range_for_any_completion() {
        check(&TopK::default(), -0.3..=0.1);
    }
}

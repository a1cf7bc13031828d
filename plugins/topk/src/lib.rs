//! TopK: the mean reward of the sentence's k best attested facts: between Max (k = 1) and Mean (k
//! large).
use std::num::NonZeroUsize;

use corver_sdk::prelude::*;

settings! {
    /// Pays a sentence the mean reward of its best attested valid triplets.
    pub struct TopK {
        /// How many facts are taken into account, best attested first.
        pub k: NonZeroUsize = NonZeroUsize::new(2).unwrap(),
        /// From the count to the reward.
        pub tiers: Tiers = Tiers::default(),
    }
}

impl SentenceRule for TopK {
    fn score(&self, sentence: &Sentence, corpus: &Corpus) -> Outcome {
        let mut facts = corpus.count_facts(sentence, self.tiers.top())?;
        facts.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        facts.truncate(self.k.get());
        mean_fact(&facts, &self.tiers)
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
        let judged = |k: usize| {
            run(&configured::<TopK>(&format!(r#"{{"k": {k}}}"#)).unwrap(), &text, &corpus)
        };
        assert_eq!([1, 2].map(|k| judged(k).reward), [Some(0.1), Some(0.05)]);
        assert!((judged(3).reward.unwrap() + 0.2 / 3.0).abs() < 1e-7);
        assert_eq!(judged(3), judged(9), "there are no more than three");
        assert_eq!((judged(2).count, judged(2).triplet), (Some(7), Some(2)));
        assert!(configured::<TopK>(r#"{"k": 0}"#).unwrap_err().contains("nonzero"));
    }

    #[test]
    fn rewards_stay_in_range_for_any_completion() {
        check(&TopK::default(), -0.3..=0.1);
    }
}

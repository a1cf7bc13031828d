//! Mean: the reward of a sentence is the mean of its facts' rewards.
use corver_sdk::prelude::*;

settings! {
    /// Rewards a sentence with the mean reward of its valid triplets.
    pub struct Mean {
        /// From the count to the reward.
        pub tiers: Tiers = Tiers::default(),
    }
}

impl SentenceRule for Mean {
    fn score(&self, sentence: &Sentence, corpus: &Corpus) -> Result<Verdict, Pending> {
        let facts = corpus.count_facts(sentence, self.tiers.top())?;
        Ok(mean_fact(&facts, &self.tiers))
    }
}

corver_sdk::export!(Mean);

#[cfg(test)]
mod tests {
    use super::*;
    use corver_sdk::testing::{DIRECTED, FILM, STARRED, check, counts, run, sentence};

    #[test]
    fn rewards_are_averaged_and_not_counts() {
        let text = sentence("Mario Camerini directed Il Seduttore with Sophia Loren.", &FILM);
        let scored = run(&Mean::default(), &text, &counts(&[(DIRECTED, 5_000), (STARRED, 0)]));
        assert_eq!((scored.reward, scored.count, scored.triplet), (Some(-0.1), Some(0), Some(1)));
        assert_eq!(scored.note.as_deref(), Some("mean of 2"));
    }

    #[test]
    fn unknown_counts_are_excluded_from_mean() {
        let text = sentence("Mario Camerini directed Il Seduttore with Sophia Loren.", &FILM);
        let unknown = counts(&[(DIRECTED, 0)]).without(STARRED);
        assert_eq!(run(&Mean::default(), &text, &unknown).reward, Some(-0.3));
        assert_eq!(run(&Mean::default(), &sentence("Well.", &[]), &counts(&[])).reward, None);
    }

    #[test]
    fn rewards_stay_in_range_for_any_completion() {
        check(&Mean::default(), -0.3..=0.1);
    }
}

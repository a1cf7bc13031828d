//! Max: the best attested fact of a sentence decides.
use corver_sdk::prelude::*;

settings! {
    /// Rewards a sentence by the largest count of its valid triplets.
    pub struct Max {
        /// From the count to the reward.
        pub tiers: Tiers = Tiers::default(),
    }
}

impl SentenceRule for Max {
    fn score(&self, sentence: &Sentence, corpus: &Corpus) -> Result<Verdict, Pending> {
        let facts = corpus.count_facts(sentence, self.tiers.top())?;
        // Reversed, since `max_by_key` returns the last of equal counts, and the first decides.
        let Some((index, count)) = facts.into_iter().rev().max_by_key(|&(_, count)| count) else {
            return Ok(Verdict::abstain("no fact that can be counted"));
        };
        Ok(Verdict::new(self.tiers.reward(Some(count))).because(index, Some(count)))
    }
}

corver_sdk::export!(Max);

#[cfg(test)]
mod tests {
    use super::*;
    use corver_sdk::testing::{DIRECTED, FILM, STARRED, check, counts, run, sentence};

    #[test]
    fn highest_count_triplet_decides_reward() {
        let text = sentence("Mario Camerini directed Il Seduttore with Sophia Loren.", &FILM);
        let scored = run(&Max::default(), &text, &counts(&[(DIRECTED, 0), (STARRED, 50)]));
        assert_eq!((scored.reward, scored.count, scored.triplet), (Some(0.1), Some(50), Some(1)));
        let unknown = counts(&[(DIRECTED, 3)]).without(STARRED);
        assert_eq!(run(&Max::default(), &text, &unknown).reward, Some(-0.1));
        assert_eq!(
            run(&Max::default(), &text, &counts(&[]).without(DIRECTED).without(STARRED)).reward,
            None
        );
    }

    #[test]
    fn first_of_equal_counts_decides() {
        let text = sentence("Mario Camerini directed Il Seduttore with Sophia Loren.", &FILM);
        let scored = run(&Max::default(), &text, &counts(&[(DIRECTED, 50), (STARRED, 50)]));
        assert_eq!((scored.count, scored.triplet), (Some(50), Some(0)));
    }

    #[test]
    fn rewards_stay_in_range_for_any_completion() {
        check(&Max::default(), -0.3..=0.1);
    }
}

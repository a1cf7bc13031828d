//! Min: the least attested fact of a sentence decides. One query per valid triplet, in one round
//! (paper, “Min”).
use corver_sdk::prelude::*;

settings! {
    /// Rewards a sentence by the smallest count of its valid triplets.
    pub struct Min {
        /// From the count to the reward.
        pub tiers: Tiers = Tiers::default(),
    }
}

impl SentenceRule for Min {
    fn score(&self, sentence: &Sentence, corpus: &Corpus) -> Result<Verdict, Pending> {
        // A fact without a count says nothing about the others.
        let facts = corpus.count_facts(sentence, self.tiers.top())?;
        let Some((index, count)) = facts.into_iter().min_by_key(|&(_, count)| count) else {
            return Ok(Verdict::abstain("no fact that can be counted"));
        };
        Ok(Verdict::new(self.tiers.reward(Some(count))).because(index, Some(count)))
    }
}

corver_sdk::export!(Min);

#[cfg(test)]
mod tests {
    use super::*;
    use corver_sdk::testing::{DIRECTED, FILM, STARRED, check, counts, run, sentence};

    #[test]
    fn lowest_count_triplet_decides_reward() {
        // The paper's example.
        let text =
            sentence("Mario Camerini directed Il Seduttore. The film starred Sophia Loren.", &FILM);
        let scored = run(&Min::default(), &text, &counts(&[(DIRECTED, 50), (STARRED, 0)]));
        assert_eq!((scored.reward, scored.count, scored.triplet), (Some(-0.3), Some(0), Some(1)));
        assert_eq!(scored.requests, [DIRECTED, STARRED]);
    }

    #[test]
    fn unknown_counts_are_left_out() {
        let text = sentence("It is so.", &FILM);
        assert_eq!(
            run(&Min::default(), &text, &counts(&[(DIRECTED, 50)]).without(STARRED)).reward,
            Some(0.1)
        );
        let none = counts(&[]).without(DIRECTED).without(STARRED);
        assert_eq!(run(&Min::default(), &text, &none).reward, None);
    }

    #[test]
    fn triplets_without_a_query_are_left_out() {
        let text =
            sentence("It is so.", &[("Rome", "is", "rome"), ("She", "saw", "Rome"), FILM[0]]);
        assert_eq!(run(&Min::default(), &text, &counts(&[(DIRECTED, 7)])).triplet, Some(2));
        assert_eq!(run(&Min::default(), &sentence("Well.", &[]), &counts(&[])).reward, None);
    }

    #[test]
    fn rewards_stay_in_range_for_any_completion() {
        check(&Min::default(), -0.3..=0.1);
    }
}

//! First: a reward for the number of times that head and tail of the sentence's first fact occur
//! together in the corpus. One query per sentence (paper, “First”).
use corver_sdk::prelude::*;

settings! {
    /// Rewards a sentence by the count of its first valid triplet.
    pub struct First {
        /// From the count to the reward.
        pub tiers: Tiers = Tiers::default(),
    }
}

impl SentenceRule for First {
    fn score(&self, sentence: &Sentence, corpus: &Corpus) -> Result<Verdict, Pending> {
        let Some((index, triplet)) = sentence.first_valid_triplet() else {
            return Ok(Verdict::abstain("no valid triplet"));
        };
        let Some(query) = triplet.word_query() else {
            return Ok(Verdict::abstain("fewer than two content words"));
        };
        let count = corpus.count(query.limit(self.tiers.top()))?;
        Ok(Verdict::new(self.tiers.reward(count)).because(index, count))
    }
}

corver_sdk::export!(First);

#[cfg(test)]
mod tests {
    use super::*;
    use corver_sdk::testing::{DIRECTED, FILM, check, counts, run, sentence};

    #[test]
    fn only_first_triplet_is_counted() {
        // The paper's example.
        let text =
            sentence("Mario Camerini directed Il Seduttore. The film starred Sophia Loren.", &FILM);
        let scored = run(&First::default(), &text, &counts(&[(DIRECTED, 50)]));
        assert_eq!((scored.reward, scored.count, scored.triplet), (Some(0.1), Some(50), Some(0)));
        assert_eq!(scored.requests.len(), 1);
    }

    #[test]
    fn pronoun_triplet_is_skipped() {
        let text = sentence(
            "He was born in Rome.",
            &[("He", "born in", "Rome"), ("Mario Camerini", "born in", "Rome")],
        );
        let scored = run(&First::default(), &text, &counts(&[("Mario AND Camerini AND Rome", 3)]));
        assert_eq!((scored.reward, scored.triplet), (Some(-0.1), Some(1)));
    }

    #[test]
    fn abstains_without_valid_triplet() {
        let nothing = counts(&[]);
        assert_eq!(run(&First::default(), &sentence("Well.", &[]), &nothing).reward, None);
        // The first valid triplet decides, even if it makes no query.
        let narrow = [("Rome", "is", "rome"), ("Mario Camerini", "directed", "Il Seduttore")];
        assert_eq!(
            run(&First::default(), &sentence("Rome is Rome.", &narrow), &nothing).reward,
            None
        );
        let unknown = counts(&[]).without(DIRECTED);
        assert_eq!(
            run(&First::default(), &sentence("It is so.", &FILM), &unknown).reward,
            Some(0.0)
        );
    }

    #[test]
    fn tier_settings_change_rewards_and_are_validated() {
        let rule = First::from_json(r#"{"tiers": {"rewards": [-1.0, -0.1, 0.0, 0.1]}}"#).unwrap();
        let unseen = counts(&[(DIRECTED, 0)]);
        assert_eq!(run(&rule, &sentence("So it is.", &FILM), &unseen).reward, Some(-1.0));
        let error = First::from_json(r#"{"tiers": {"thresholds": [5]}}"#).unwrap_err();
        assert!(error.contains("tiers: `rewards` must have 3 entries"), "{error}");
        let error = First::from_json(r#"{"tires": {}}"#).unwrap_err();
        assert!(error.contains("unknown field `tires`, expected `tiers`"), "{error}");
    }

    #[test]
    fn rewards_stay_in_range_for_any_completion() {
        check(&First::default(), -0.3..=0.1);
    }
}

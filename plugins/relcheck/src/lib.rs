//! RelCheck: as First, but a well attested pair must also occur with its relation. One query per
//! sentence, two for well attested pairs (paper, appendix on RelCheck).
use corver_sdk::prelude::*;

settings! {
    /// Rewards a sentence by the count of its first valid triplet, and checks the relation of a well
    /// attested one.
    pub struct RelCheck {
        /// From the count to the reward.
        pub tiers: Tiers = Tiers::default(),
        /// The reward of a pair in the highest tier that never occurs with its relation.
        pub penalty: f64 = -0.05,
    }
}

impl SentenceRule for RelCheck {
    fn score(&self, sentence: &Sentence, corpus: &Corpus) -> Result<Verdict, Pending> {
        let Some((index, triplet)) = sentence.first_valid_triplet() else {
            return Ok(Verdict::abstain("no valid triplet"));
        };
        let Some(pair) = triplet.word_query() else {
            return Ok(Verdict::abstain("fewer than two content words"));
        };
        let count = corpus.count(pair.clone().limit(self.tiers.top()))?;
        if count >= Some(self.tiers.top()) {
            // Equal queries: the relation adds no content word, so there is nothing to check.
            let related = triplet.relation_query().filter(|related| *related != pair);
            if let Some(related) = related
                && corpus.count(related.limit(1))? == Some(0)
            {
                let verdict = Verdict::new(self.penalty).because(index, count);
                return Ok(verdict.note("never with this relation"));
            }
        }
        Ok(Verdict::new(self.tiers.reward(count)).because(index, count))
    }

    fn validate(&self) -> Result<(), String> {
        finite("penalty", self.penalty)
    }
}

corver_sdk::export!(RelCheck);

#[cfg(test)]
mod tests {
    use super::*;
    use corver_sdk::testing::{check, counts, run, sentence};

    const PAIR: &str = "Sophia AND Loren AND Il AND Seduttore";
    const RELATED: &str = "Sophia AND Loren AND Il AND Seduttore AND directed";

    fn loren_directed(corpus: &[(&str, u64)]) -> corver_sdk::testing::ScoredSentence {
        let text = sentence(
            "Sophia Loren directed Il Seduttore.",
            &[("Sophia Loren", "directed", "Il Seduttore")],
        );
        run(&RelCheck::default(), &text, &counts(corpus))
    }

    #[test]
    fn frequent_pair_without_relation_is_penalised() {
        // The paper's example.
        assert_eq!(loren_directed(&[(PAIR, 20), (RELATED, 0)]).reward, Some(-0.05));
        assert_eq!(loren_directed(&[(PAIR, 20), (RELATED, 1)]).reward, Some(0.1));
    }

    #[test]
    fn infrequent_pair_skips_relation_query() {
        let scored = loren_directed(&[(PAIR, 19)]);
        assert_eq!((scored.reward, scored.requests.len()), (Some(0.0), 1));
        assert_eq!(loren_directed(&[(PAIR, 0)]).reward, Some(-0.3));
    }

    #[test]
    fn unknown_or_empty_relation_leaves_pair_reward() {
        let text = sentence("It is so.", &[("Sophia Loren", "directed", "Il Seduttore")]);
        let unknown = counts(&[(PAIR, 99)]).without(RELATED);
        assert_eq!(run(&RelCheck::default(), &text, &unknown).reward, Some(0.1));
        for relation in [" ", "was for", "is"] {
            let empty = sentence("It is so.", &[("Sophia Loren", relation, "Il Seduttore")]);
            let scored = run(&RelCheck::default(), &empty, &counts(&[(PAIR, 99)]));
            assert_eq!((scored.reward, scored.requests.len()), (Some(0.1), 1), "{relation:?}");
        }
    }

    #[test]
    fn only_first_triplet_is_counted() {
        // The paper's other example: the first fact is well attested, with its relation.
        let film = [
            ("Mario Camerini", "directed", "Il Seduttore"),
            ("Il Seduttore", "starred", "Sophia Loren"),
        ];
        let text =
            sentence("Mario Camerini directed Il Seduttore. The film starred Sophia Loren.", &film);
        let pair = "Mario AND Camerini AND Il AND Seduttore";
        let corpus =
            counts(&[(pair, 50), ("Mario AND Camerini AND Il AND Seduttore AND directed", 12)]);
        assert_eq!(run(&RelCheck::default(), &text, &corpus).reward, Some(0.1));
    }

    #[test]
    fn rewards_stay_in_range_for_any_completion() {
        check(&RelCheck::default(), -0.3..=0.1);
    }
}

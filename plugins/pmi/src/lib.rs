//! Pmi: as First, but frequent words that meet by chance have no reward.
//!
//! The ratio of a count to the count by chance is the exponential of pointwise mutual information
//! (Church and Hanks 1990). Tiers of the ratio are tiers of its logarithm.
use corver_sdk::prelude::*;

settings! {
    /// Rewards a sentence by the count of its first valid triplet, divided by the count that head and
    /// tail would have by chance.
    pub struct Pmi {
        /// From the ratio, rounded down, to the reward. The first tier is that of a count of 0.
        pub tiers: Tiers = Tiers::default(),
    }
}

/// Returns the expected count of two words that occur `head` and `tail` times, independently, in a
/// corpus of `tokens`, if `reach` tokens are near enough to an occurrence.
fn by_chance(head: u64, tail: u64, reach: f64, tokens: u64) -> f64 {
    let rarest = head.min(tail) as f64;
    let met = head.max(tail) as f64 * reach / tokens.max(1) as f64;
    rarest * met.min(1.0)
}

impl SentenceRule for Pmi {
    fn score(&self, sentence: &Sentence, corpus: &Corpus) -> Result<Verdict, Pending> {
        let Some((index, triplet)) = sentence.first_valid_triplet() else {
            return Ok(Verdict::abstain("no valid triplet"));
        };
        let Some(pair) = triplet.word_query() else {
            return Ok(Verdict::abstain("fewer than two content words"));
        };
        let (Some(tokens), Some(window)) = (corpus.tokens(), corpus.window()) else {
            return Ok(Verdict::abstain("the source does not report its size and window"));
        };
        let ends = [&triplet.head, &triplet.tail].map(|end| Query::all_of(content_words(end)));
        let [head, tail] = ends;
        let counts = corpus.count_all([pair, head, tail])?;
        let [Some(count), Some(head), Some(tail)] = counts[..] else {
            return Ok(Verdict::new(0.0).because(index, None));
        };
        // Both sides of an occurrence, but not beyond a document of mean length.
        let mut reach = 2.0 * window as f64;
        if let Some(documents) = corpus.documents() {
            reach = reach.min(tokens as f64 / documents.max(1) as f64);
        }
        let expected = by_chance(head, tail, reach, tokens);
        // One expected match more: a single meeting of rare words is no evidence.
        let ratio = (count as f64 / (1.0 + expected)) as u64;
        let tier = ratio.max(count.min(1));
        let verdict = Verdict::new(self.tiers.reward(Some(tier))).because(index, Some(count));
        Ok(verdict.note(&format!("{expected:.1} by chance")))
    }
}

corver_sdk::export!(Pmi);

#[cfg(test)]
mod tests {
    use super::*;
    use corver_sdk::testing::{FakeCorpus, check, counts, run, sentence};

    /// The counts of “Rome … Italy”, in a corpus with 1,000 documents of 1,000 tokens.
    fn rome(pair: u64, head: u64, tail: u64) -> FakeCorpus {
        counts(&[("Rome AND Italy", pair), ("Rome", head), ("Italy", tail)])
            .of_size(1_000_000, 1_000)
            .of_window(100)
    }

    fn reward(corpus: &FakeCorpus) -> Option<f32> {
        let text = sentence("Rome is in Italy.", &[("Rome", "is in", "Italy")]);
        run(&Pmi::default(), &text, corpus).reward
    }

    #[test]
    fn rare_words_are_rewarded_as_by_first() {
        let rewards = [0, 1, 4, 5, 19, 20].map(|pair| reward(&rome(pair, 40, 30)).unwrap());
        // 30 × 40 × 200 tokens of 1,000,000 are 0.24 by chance, so 5 becomes 4, and 20 becomes 16.
        assert_eq!(rewards, [-0.3, -0.1, -0.1, -0.1, 0.0, 0.0]);
        let rewards = [5, 7, 24, 25].map(|pair| reward(&rome(pair, 40, 30)).unwrap());
        assert_eq!(rewards, [-0.1, 0.0, 0.0, 0.1]);
    }

    #[test]
    fn frequent_words_must_meet_more_often_than_by_chance() {
        // 2,000 × 1,000 × 200 of 1,000,000: 400 by chance.
        let rewards = [0, 3, 400, 2_005, 8_020].map(|pair| reward(&rome(pair, 1_000, 2_000)));
        assert_eq!(rewards, [-0.3, -0.1, -0.1, 0.0, 0.1].map(Some));
    }

    #[test]
    fn reach_ends_at_document() {
        // Documents of 20 tokens: 1,000 × 2,000 × 20 of 1,000,000 are 40 by chance.
        let short = rome(820, 1_000, 2_000).of_size(1_000_000, 50_000);
        assert_eq!((reward(&short), reward(&rome(820, 1_000, 2_000))), (Some(0.1), Some(-0.1)));
    }

    #[test]
    fn unknown_size_abstains_and_unknown_count_earns_nothing() {
        let text = sentence("Rome is in Italy.", &[("Rome", "is in", "Italy")]);
        assert_eq!(run(&Pmi::default(), &text, &counts(&[])).reward, None);
        assert_eq!(reward(&rome(9, 10, 10).without("Italy")), Some(0.0));
    }

    #[test]
    fn rewards_stay_in_range_for_any_completion() {
        check(&Pmi::default(), -0.3..=0.1);
    }
}

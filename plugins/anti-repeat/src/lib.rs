//! AntiRepeat: as First, but a sentence that states again what an earlier one stated is not paid
//! for it again.
//!
//! Under First a policy may learn to say one well attested fact over and over (paper, appendix,
//! lesson L2).
use std::collections::BTreeSet;

use corver_sdk::prelude::*;

settings! {
    /// Pays the first valid triplet by its count, once in each block of a completion.
    pub struct AntiRepeat {
        /// From the count to the reward.
        pub tiers: Tiers = Tiers::default(),
        /// The most that a repetition earns. Penalties stay, so that saying a falsehood twice does
        /// not halve its price.
        pub repeated: f64 = 0.0,
    }
}

impl CompletionRule for AntiRepeat {
    fn judge(&self, completion: &Completion, corpora: &[Corpus]) -> Vec<Outcome> {
        // An answer may state once more what the reasoning found.
        let mut stated = BTreeSet::new();
        let mut is_new = |sentence: &Sentence, query: &Query| {
            let words: BTreeSet<String> = query.words().map(str::to_lowercase).collect();
            stated.insert((sentence.section as u8, words))
        };
        let judge = |(sentence, corpus): (&Sentence, &Corpus)| {
            let Some((index, triplet)) = sentence.first_valid_triplet() else {
                return abstain("no valid triplet");
            };
            let Some(query) = triplet.word_query() else {
                return abstain("fewer than two content words");
            };
            let is_new = is_new(sentence, &query);
            let count = corpus.count(query.enough(self.tiers.top()))?;
            let reward = self.tiers.reward(count);
            if is_new || reward <= self.repeated {
                verdict(reward).because(index, count)
            } else {
                verdict(self.repeated).because(index, count).note("stated before")
            }
        };
        completion.sentences.iter().zip(corpora).map(judge).collect()
    }

    fn validate(&self) -> Result<(), String> {
        finite("repeated", self.repeated)
    }
}

corver_sdk::export!(AntiRepeat);

#[cfg(test)]
mod tests {
    use super::*;
    use corver_sdk::configured;
    use corver_sdk::testing::{Parts, check, completion, counts, run_completion};

    const ROME: &[Parts] = &[("Rome", "is in", "Italy")];
    const AGAIN: &[Parts] = &[("ITALY", "is the country of", "rome")];
    const LIMA: &[Parts] = &[("Lima", "is in", "Italy")];

    fn rewards(rule: &AntiRepeat, sentences: &[(&str, &[Parts])]) -> Vec<Option<f32>> {
        let corpus =
            counts(&[("Rome AND Italy", 99), ("ITALY AND rome", 99), ("Lima AND Italy", 0)]);
        let judged = run_completion(rule, &completion(sentences), &corpus);
        judged.into_iter().map(|judged| judged.reward).collect()
    }

    #[test]
    fn repeated_triplet_is_rewarded_once() {
        let sentences = [
            ("Rome is in Italy.", ROME),
            ("So.", &[]),
            ("ITALY has rome.", AGAIN),
            ("Rome is in Italy.", ROME),
        ];
        assert_eq!(
            rewards(&AntiRepeat::default(), &sentences),
            [Some(0.1), None, Some(0.0), Some(0.0)]
        );
        let strict = configured(r#"{"repeated": -0.5}"#).unwrap();
        assert_eq!(rewards(&strict, &sentences), [Some(0.1), None, Some(-0.5), Some(-0.5)]);
    }

    #[test]
    fn unsupported_triplet_is_penalised_each_time() {
        let sentences = [("Lima is in Italy.", LIMA), ("Lima is in Italy.", LIMA)];
        assert_eq!(rewards(&AntiRepeat::default(), &sentences), [Some(-0.3), Some(-0.3)]);
    }

    #[test]
    fn answer_may_repeat_think_triplet() {
        let mut completion =
            completion(&[("Rome is in Italy.", ROME), ("Rome is in Italy.", ROME)]);
        completion.sentences[1].section = Section::Answer;
        let judged =
            run_completion(&AntiRepeat::default(), &completion, &counts(&[("Rome AND Italy", 99)]));
        assert_eq!([judged[0].reward, judged[1].reward], [Some(0.1), Some(0.1)]);
    }

    #[test]
    fn rewards_stay_in_range_for_any_completion() {
        check(&AntiRepeat::default(), -0.3..=0.1);
    }
}

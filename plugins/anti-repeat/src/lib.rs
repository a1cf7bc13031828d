//! AntiRepeat: as First, but a repeated fact is not rewarded again.
//!
//! Under First a policy may learn to repeat one well attested fact (paper, appendix, lesson L2).
use std::collections::BTreeSet;

use corver_sdk::prelude::*;

settings! {
    /// Rewards the first valid triplet by its count, once in each block of a completion.
    pub struct AntiRepeat {
        /// From the count to the reward.
        pub tiers: Tiers = Tiers::default(),
        /// Highest reward of a repetition. Lower rewards stay: a repeated falsehood has its full
        /// penalty.
        pub repeated: f64 = 0.0,
    }
}

impl AntiRepeat {
    fn score(
        &self,
        sentence: &Sentence,
        corpus: &Corpus,
        stated: &mut BTreeSet<(u8, BTreeSet<String>)>,
    ) -> Result<Verdict, Pending> {
        let Some((index, triplet)) = sentence.first_valid_triplet() else {
            return Ok(Verdict::abstain("no valid triplet"));
        };
        let Some(query) = triplet.word_query() else {
            return Ok(Verdict::abstain("fewer than two content words"));
        };
        let words = query.words().map(str::to_lowercase).collect();
        let is_new = stated.insert((sentence.section as u8, words));
        let count = corpus.count(query.limit(self.tiers.top()))?;
        let reward = self.tiers.reward(count);
        if is_new || reward <= self.repeated {
            Ok(Verdict::new(reward).because(index, count))
        } else {
            Ok(Verdict::new(self.repeated).because(index, count).note("stated before"))
        }
    }
}

impl CompletionRule for AntiRepeat {
    fn score_sentences(
        &self,
        _completion: &Completion,
        contexts: &[SentenceContext],
    ) -> Vec<Result<Verdict, Pending>> {
        // By section: an answer may repeat a fact of the reasoning.
        let mut stated = BTreeSet::new();
        let mut outcomes = Vec::new();
        for SentenceContext { sentence, corpus } in contexts {
            outcomes.push(self.score(sentence, corpus, &mut stated));
        }
        outcomes
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
        let scored = run_completion(rule, &completion(sentences), &corpus);
        scored.into_iter().map(|scored| scored.reward).collect()
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
        let scored =
            run_completion(&AntiRepeat::default(), &completion, &counts(&[("Rome AND Italy", 99)]));
        assert_eq!([scored[0].reward, scored[1].reward], [Some(0.1), Some(0.1)]);
    }

    #[test]
    fn rewards_stay_in_range_for_any_completion() {
        check(&AntiRepeat::default(), -0.3..=0.1);
    }
}

//! {{type}}: does the corpus attest the sentence's first fact?
use corver_sdk::prelude::*;

settings! {
    /// Pays a sentence whose first fact the corpus attests.
    pub struct {{type}} {
        /// Counts up to this one are noise, in occurrences.
        pub noise_floor: u64 = 0,
        /// The reward of a fact that is attested.
        pub attested: f64 = 0.1,
        /// The reward of a fact that is not.
        pub unattested: f64 = -0.3,
    }
}

impl SentenceRule for {{type}} {
    fn score(&self, sentence: &Sentence, corpus: &Corpus) -> Outcome {
        let Some((index, triplet)) = sentence.first_valid_triplet() else { return abstain("no valid triplet") };
        let Some(query) = triplet.word_query() else { return abstain("fewer than two content words") };
        let count = corpus.count(query.enough(self.noise_floor.saturating_add(1)))?;
        let Some(found) = count else { return abstain("the corpus cannot count this") };
        verdict(if found > self.noise_floor { self.attested } else { self.unattested }).because(index, count)
    }

    fn validate(&self) -> Result<(), String> {
        finite("attested", self.attested)?;
        finite("unattested", self.unattested)
    }
}

corver_sdk::export!({{type}});

#[cfg(test)]
mod tests {
    use super::*;
    use corver_sdk::configured;
    use corver_sdk::testing::{check, counts, reward_of, run, sentence};

    #[test]
    fn unattested_facts_are_penalised() {
        let paris = sentence("Paris is in Peru.", &[("Paris", "is in", "Peru")]);
        let judged = run(&{{type}}::default(), &paris, &counts(&[("Paris AND Peru", 0)]));
        assert_eq!((judged.reward, judged.count, judged.triplet), (Some(-0.3), Some(0), Some(0)));
    }

    #[test]
    fn noise_floor_is_configurable() {
        let rule: {{type}} = configured(r#"{"noise_floor": 9}"#).unwrap();
        assert_eq!([reward_of(&rule, 9), reward_of(&rule, 10)], [Some(-0.3), Some(0.1)]);
    }

    #[test]
    fn rewards_stay_in_range_for_any_completion() {
        check(&{{type}}::default(), -0.3..=0.1);
    }
}

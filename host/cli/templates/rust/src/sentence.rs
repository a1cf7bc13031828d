//! {{type}}: a reward for sentences whose first fact the corpus attests.
use corver_sdk::prelude::*;

settings! {
    /// Rewards a sentence if the corpus attests its first fact.
    pub struct {{type}} {
        /// Counts up to this number are noise, occurrences.
        pub noise_floor: u64 = 0,
        /// Reward of an attested fact.
        pub attested: f64 = 0.1,
        /// Reward of an unattested fact.
        pub unattested: f64 = -0.3,
    }
}

impl SentenceRule for {{type}} {
    fn score(&self, sentence: &Sentence, corpus: &Corpus) -> Result<Verdict, Pending> {
        let Some((index, triplet)) = sentence.first_valid_triplet() else {
            return Ok(Verdict::abstain("no valid triplet"));
        };
        let Some(query) = triplet.word_query() else {
            return Ok(Verdict::abstain("fewer than two content words"));
        };
        // Without a reply yet, `?` ends the function; it runs again once the count is there.
        let count = corpus.count(query.limit(self.noise_floor.saturating_add(1)))?;
        let Some(occurrences) = count else {
            return Ok(Verdict::abstain("the corpus cannot count this"));
        };
        let reward = if occurrences > self.noise_floor { self.attested } else { self.unattested };
        Ok(Verdict::new(reward).because(index, count))
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
        let scored = run(&{{type}}::default(), &paris, &counts(&[("Paris AND Peru", 0)]));
        assert_eq!((scored.reward, scored.count, scored.triplet), (Some(-0.3), Some(0), Some(0)));
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

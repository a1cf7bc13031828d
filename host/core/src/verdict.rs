//! Stage 6: sentences and counts → verdicts. The reward rule decides; the host only calls it.

use serde::{Deserialize, Serialize};

use crate::{Count, Counter, PartError, Section, Triplet};

/// What a rule sees of one sentence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleSentence {
    /// Which completion of the batch.
    pub completion: u32,
    /// Which sentence of that completion.
    pub index: u32,
    /// The sentence, trimmed.
    pub text: String,
    /// The block it stood in.
    pub section: Section,
    /// What the extractor found in it.
    pub triplets: Vec<Triplet>,
}

/// A rule's final word on one sentence, with the counts it asked for on the way.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Finite; `None` where the rule abstained, which pays 0.
    pub reward: Option<f32>,
    /// The count that decided.
    pub count: Option<u64>,
    /// Index of the triplet that decided.
    pub triplet: Option<u32>,
    /// The rule's own words.
    pub note: Option<String>,
    /// Everything that was looked up for this sentence, in the order asked.
    pub counts: Vec<Count>,
    /// What each rule of a [`Blend`] said; empty where one rule judges alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<Channel>,
}

/// One rule's part in the verdict of several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Channel {
    /// The rule's name.
    pub rule: String,
    /// What its reward is multiplied by.
    pub weight: f64,
    /// As the rule gave it, before the weight.
    pub reward: Option<f32>,
    /// The count that decided.
    pub count: Option<u64>,
    /// Index of the triplet that decided.
    pub triplet: Option<u32>,
    /// The rule's own words.
    pub note: Option<String>,
}

/// A loaded reward rule.
pub trait Rules {
    /// One verdict per sentence, in order. `sentences` holds whole completions.
    ///
    /// # Errors
    /// Where the rule breaks its contract or a limit, or `counter` fails. There is no partial answer.
    fn judge(&mut self, sentences: &[RuleSentence], counter: &mut dyn Counter) -> Result<Vec<Verdict>, PartError>;
}

/// One rule of a [`Blend`].
pub struct Weighted {
    /// What its channel is called.
    pub name: String,
    /// What its rewards are multiplied by; finite.
    pub weight: f64,
    /// The rule.
    pub rule: Box<dyn Rules>,
}

/// Several rules as one. A sentence earns the weighted sum of their rewards; a rule that abstains adds nothing, and where
/// all do, so does the blend. The first rule with a count decides whether the sentence is supported.
pub struct Blend(Vec<Weighted>);

impl Blend {
    /// In this order. One rule alone is weighted, and has no channel.
    #[must_use]
    pub fn new(rules: Vec<Weighted>) -> Self {
        Self(rules)
    }
}

impl Rules for Blend {
    fn judge(&mut self, sentences: &[RuleSentence], counter: &mut dyn Counter) -> Result<Vec<Verdict>, PartError> {
        let several = self.0.len() > 1;
        let mut blended = vec![Verdict::default(); sentences.len()];
        for Weighted { name, weight, rule } in &mut self.0 {
            let verdicts = rule.judge(sentences, counter)?;
            if verdicts.len() != sentences.len() {
                return Err(format!("{name} gave {} verdicts for {} sentences", verdicts.len(), sentences.len()).into());
            }
            for (sum, verdict) in blended.iter_mut().zip(verdicts) {
                let channel = sum.add(name, *weight, verdict)?;
                sum.channels.extend(several.then_some(channel));
            }
        }
        Ok(blended)
    }
}

impl Verdict {
    /// Adds one rule's verdict; says what its channel is.
    fn add(&mut self, rule: &str, weight: f64, verdict: Self) -> Result<Channel, PartError> {
        let Self { reward, count, triplet, note, counts, .. } = verdict;
        if let Some(reward) = reward {
            let sum = (f64::from(self.reward.unwrap_or(0.0)) + weight * f64::from(reward)) as f32;
            if !sum.is_finite() {
                return Err(
                    format!("{weight} times the reward {reward} of {rule} makes a sentence's reward {sum}").into()
                );
            }
            self.reward = Some(sum);
        }
        if self.count.is_none() {
            (self.count, self.triplet) = (count, triplet);
        }
        let new: Vec<Count> = counts.into_iter().filter(|count| !self.counts.contains(count)).collect();
        self.counts.extend(new);
        Ok(Channel { rule: rule.to_owned(), weight, reward, count, triplet, note })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Query;

    /// Asks for the sentence's words and pays what it is told where they are found.
    struct Pays(f32);

    impl Rules for Pays {
        fn judge(&mut self, sentences: &[RuleSentence], counter: &mut dyn Counter) -> Result<Vec<Verdict>, PartError> {
            let queries: Vec<Query> = sentences.iter().map(|sentence| Query::new([[&sentence.text]])).collect();
            let verdict = |count: Count| Verdict {
                reward: count.occurrences.map(|_| self.0),
                count: count.occurrences,
                counts: vec![count],
                ..Verdict::default()
            };
            Ok(counter.count(&queries)?.into_iter().map(verdict).collect())
        }
    }

    struct Abstains;

    impl Rules for Abstains {
        fn judge(&mut self, sentences: &[RuleSentence], _: &mut dyn Counter) -> Result<Vec<Verdict>, PartError> {
            Ok(vec![Verdict::default(); sentences.len()])
        }
    }

    /// Knows one word.
    struct Dictionary;

    impl Counter for Dictionary {
        fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, PartError> {
            let count = |query: &Query| Count {
                query: query.clone(),
                occurrences: (*query == Query::new([["Rome"]])).then_some(7),
                exact: true,
            };
            Ok(queries.iter().map(count).collect())
        }
    }

    #[test]
    fn a_blend_adds_weighted_rewards() {
        let named = |name: &str, weight, rule| Weighted { name: name.into(), weight, rule };
        let mut blend = Blend::new(vec![
            named("shy", 5.0, Box::new(Abstains)),
            named("a", 0.75, Box::new(Pays(2.0))),
            named("b", 0.5, Box::new(Pays(-1.0))),
        ]);
        let sentence = |(index, text): (u32, &str)| RuleSentence {
            completion: 0,
            index,
            text: text.into(),
            section: Section::Body,
            triplets: Vec::new(),
        };
        let sentences: Vec<RuleSentence> = (0..).zip(["Rome", "Atlantis"]).map(sentence).collect();
        let verdicts = blend.judge(&sentences, &mut Dictionary).unwrap();

        assert_eq!((verdicts[0].reward, verdicts[0].count, verdicts[0].counts.len()), (Some(1.0), Some(7), 1));
        let channels = verdicts[0].channels.iter().map(|channel| (channel.rule.as_str(), channel.reward));
        assert_eq!(channels.collect::<Vec<_>>(), [("shy", None), ("a", Some(2.0)), ("b", Some(-1.0))]);
        assert_eq!((verdicts[1].reward, verdicts[1].count), (None, None));

        let mut halved = Blend::new(vec![named("a", 0.5, Box::new(Pays(2.0)))]);
        let verdict = &halved.judge(&sentences, &mut Dictionary).unwrap()[0];
        assert_eq!((verdict.reward, verdict.channels.len()), (Some(1.0), 0));
        let mut endless = Blend::new(vec![named("a", 1e300, Box::new(Pays(2.0)))]);
        let error = endless.judge(&sentences, &mut Dictionary).unwrap_err().to_string();
        assert!(error.contains("reward 2 of a makes a sentence's reward inf"), "{error}");
    }
}

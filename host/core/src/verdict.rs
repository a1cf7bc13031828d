//! Stage 6: sentences and what was asked about them → verdicts. The reward rule decides; the host
//! only calls it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{Backends, BoxError, Capability, Completion, Exchange, Lookup};

/// A rule's final word on one sentence, with the look-ups it asked for on the way.
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
    /// Which tokens get the reward.
    #[serde(default, skip_serializing_if = "Credit::is_of_the_sentence")]
    pub credit: Credit,
    /// Everything that was looked up for this sentence, each once, in the order asked.
    pub lookups: Vec<Lookup>,
    /// Everything else that was asked for it, each once, in the order asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exchanges: Vec<Exchange>,
    /// What each rule of a [`Blend`] said; empty where one rule judges alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<Channel>,
}

/// Which tokens get a sentence's reward, and how.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Credit {
    /// Every token of the sentence earns it.
    #[default]
    Sentence,
    /// Single tokens earn shares of it.
    #[serde(rename = "points")]
    TokenRewards(Vec<TokenReward>),
    /// It is a label: nobody earns it, and the advantages of the sentence's tokens take its sign
    /// (FSPO).
    #[serde(rename = "sign")]
    AdvantageSign,
}

impl Credit {
    fn is_of_the_sentence(&self) -> bool {
        *self == Self::Sentence
    }
}

/// A share of a sentence's reward.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TokenReward {
    /// Earned by the token that holds this character of the sentence, counted from 0.
    pub character: u32,
    /// Finite.
    pub reward: f32,
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

/// A reward rule for sentences.
pub trait SentenceScorer: Send {
    /// What it may ask beside counts.
    fn required_capabilities(&self) -> Vec<Capability> {
        Vec::new()
    }

    /// Whether it looks at sentences' triplets: if not, none need be extracted.
    fn reads_triplets(&self) -> bool {
        true
    }

    /// For each completion, one verdict per sentence, all in order.
    ///
    /// # Errors
    /// Where the rule breaks its contract or a limit, or a verifier fails. There is no partial
    /// answer.
    fn score(
        &mut self,
        completions: &[Completion<'_>],
        backends: &mut Backends<'_>,
    ) -> Result<Vec<Vec<Verdict>>, BoxError>;
}

/// One rule of a [`Blend`].
pub struct Weighted {
    /// What its channel is called.
    pub name: String,
    /// What its rewards are multiplied by; finite.
    pub weight: f64,
    /// The rule.
    pub rule: Box<dyn SentenceScorer>,
}

/// Several rules as one. A sentence earns the weighted sum of their rewards; a rule that abstains
/// adds nothing, and where all do, so does the blend. The first rule with a count decides whether
/// the sentence is supported. A rule with a [`Credit`] of its own cannot be added to others.
pub struct Blend(Vec<Weighted>);

impl Blend {
    /// In this order. One rule alone is weighted, and has no channel.
    #[must_use]
    pub fn new(rules: Vec<Weighted>) -> Self {
        Self(rules)
    }
}

impl SentenceScorer for Blend {
    fn required_capabilities(&self) -> Vec<Capability> {
        let all: BTreeSet<Capability> =
            self.0.iter().flat_map(|weighted| weighted.rule.required_capabilities()).collect();
        all.into_iter().collect()
    }

    fn reads_triplets(&self) -> bool {
        self.0.iter().any(|weighted| weighted.rule.reads_triplets())
    }

    fn score(
        &mut self,
        completions: &[Completion<'_>],
        backends: &mut Backends<'_>,
    ) -> Result<Vec<Vec<Verdict>>, BoxError> {
        let several = self.0.len() > 1;
        let mut blended = no_verdicts(completions);
        for Weighted { name, weight, rule } in &mut self.0 {
            let verdicts = rule.score(completions, backends)?;
            check_shape(name, completions, &verdicts)?;
            for (sum, verdict) in blended.iter_mut().flatten().zip(verdicts.into_iter().flatten()) {
                let channel = sum.add(name, *weight, verdict)?;
                sum.channels.extend(several.then_some(channel));
            }
        }
        Ok(blended)
    }
}

fn no_verdicts(completions: &[Completion<'_>]) -> Vec<Vec<Verdict>> {
    completions
        .iter()
        .map(|completion| vec![Verdict::default(); completion.sentences.len()])
        .collect()
}

/// Whether there is one verdict per sentence of every completion.
pub(crate) fn check_shape(
    rule: &str,
    completions: &[Completion<'_>],
    verdicts: &[Vec<Verdict>],
) -> Result<(), BoxError> {
    let expected = completions.iter().map(|completion| completion.sentences.len());
    if expected.clone().eq(verdicts.iter().map(Vec::len)) {
        return Ok(());
    }
    let (expected, got) = (expected.sum::<usize>(), verdicts.iter().map(Vec::len).sum::<usize>());
    let shape = if expected == got { ", not in the completions that they belong to" } else { "" };
    Err(format!("{rule} gave {got} verdicts for {expected} sentences{shape}").into())
}

impl Verdict {
    /// The sign that the sentence's advantages are to take: 1 or −1; 0 where the verdict is no
    /// label.
    #[must_use]
    pub fn advantage_sign(&self) -> i8 {
        match (&self.credit, self.reward) {
            (Credit::AdvantageSign, Some(reward)) if reward > 0.0 => 1,
            (Credit::AdvantageSign, Some(reward)) if reward < 0.0 => -1,
            _ => 0,
        }
    }

    /// Adds one rule's verdict; says what its channel is.
    fn add(&mut self, rule: &str, weight: f64, verdict: Self) -> Result<Channel, BoxError> {
        let Self { reward, count, triplet, note, credit, lookups, exchanges, .. } = verdict;
        if credit != Credit::Sentence {
            return Err(format!("{rule} does not pay whole sentences, so that its rewards cannot be weighted or added to others': give it alone, with a weight of 1").into());
        }
        if let Some(reward) = reward {
            let sum = (f64::from(self.reward.unwrap_or(0.0)) + weight * f64::from(reward)) as f32;
            if !sum.is_finite() {
                return Err(format!(
                    "{weight} times the reward {reward} of {rule} makes a sentence's reward {sum}"
                )
                .into());
            }
            self.reward = Some(sum);
        }
        if self.count.is_none() {
            (self.count, self.triplet) = (count, triplet);
        }
        for lookup in lookups {
            if !self.lookups.contains(&lookup) {
                self.lookups.push(lookup);
            }
        }
        for exchange in exchanges {
            if !self.exchanges.contains(&exchange) {
                self.exchanges.push(exchange);
            }
        }
        Ok(Channel { rule: rule.to_owned(), weight, reward, count, triplet, note })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CorpusSize, Count, Counter, Query, Section, Sentence};

    /// Asks for the sentence's text and pays this where it is found.
    struct Pays(f32);

    impl SentenceScorer for Pays {
        fn score(
            &mut self,
            completions: &[Completion<'_>],
            backends: &mut Backends<'_>,
        ) -> Result<Vec<Vec<Verdict>>, BoxError> {
            let mut verdict = |sentence: &Sentence| {
                let query = Query::new([[&sentence.text]]);
                let count = backends.count(std::slice::from_ref(&query))?[0];
                Ok(Verdict {
                    reward: count.occurrences.map(|_| self.0),
                    count: count.occurrences,
                    lookups: vec![Lookup { query, count }],
                    ..Verdict::default()
                })
            };
            completions
                .iter()
                .map(|completion| completion.sentences.iter().map(&mut verdict).collect())
                .collect()
        }
    }

    struct Abstains;

    impl SentenceScorer for Abstains {
        fn score(
            &mut self,
            completions: &[Completion<'_>],
            _: &mut Backends<'_>,
        ) -> Result<Vec<Vec<Verdict>>, BoxError> {
            Ok(no_verdicts(completions))
        }
    }

    /// Knows one word.
    struct Dictionary;

    impl Counter for Dictionary {
        fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
            let known = |query: &Query| (*query == Query::new([["Rome"]])).then_some(7);
            Ok(queries.iter().map(|query| Count::exact(known(query))).collect())
        }

        fn size(&self) -> CorpusSize {
            CorpusSize::default()
        }
    }

    fn sentences(texts: &[&str]) -> Vec<Sentence> {
        let sentence = |text: &&str| Sentence {
            text: (*text).into(),
            section: Section::Body,
            span: None,
            triplets: Vec::new(),
        };
        texts.iter().map(sentence).collect()
    }

    fn completion(sentences: &[Sentence]) -> Completion<'_> {
        Completion { question: "Where?", text: "", sentences, ..Completion::default() }
    }

    fn weighted(name: &str, weight: f64, rule: impl SentenceScorer + 'static) -> Weighted {
        Weighted { name: name.into(), weight, rule: Box::new(rule) }
    }

    #[test]
    fn blend_sums_weighted_rewards() {
        let mut blend = Blend::new(vec![
            weighted("shy", 5.0, Abstains),
            weighted("a", 0.75, Pays(2.0)),
            weighted("b", 0.5, Pays(-1.0)),
        ]);
        let [rome, atlantis] = [sentences(&["Rome"]), sentences(&["Atlantis"])];
        let completions = [completion(&rome), completion(&atlantis)];
        let verdicts = blend.score(&completions, &mut Backends::counting(Dictionary)).unwrap();

        let [known, unknown] = [&verdicts[0][0], &verdicts[1][0]];
        assert_eq!((known.reward, known.count, known.lookups.len()), (Some(1.0), Some(7), 1));
        let channels = known.channels.iter().map(|channel| (channel.rule.as_str(), channel.reward));
        assert_eq!(
            channels.collect::<Vec<_>>(),
            [("shy", None), ("a", Some(2.0)), ("b", Some(-1.0))]
        );
        assert_eq!((unknown.reward, unknown.count), (None, None));
    }

    #[test]
    fn single_rule_blend_is_weighted_and_rejects_infinity() {
        let rome = sentences(&["Rome"]);
        let mut halved = Blend::new(vec![weighted("a", 0.5, Pays(2.0))]);
        let verdict =
            &halved.score(&[completion(&rome)], &mut Backends::counting(Dictionary)).unwrap()[0][0];
        assert_eq!((verdict.reward, verdict.channels.len()), (Some(1.0), 0));
        let mut endless = Blend::new(vec![weighted("a", 1e300, Pays(2.0))]);
        let error = endless
            .score(&[completion(&rome)], &mut Backends::counting(Dictionary))
            .unwrap_err()
            .to_string();
        assert!(error.contains("reward 2 of a makes a sentence's reward inf"), "{error}");
    }

    #[test]
    fn blend_rejects_sign_credit() {
        struct Signs;
        impl SentenceScorer for Signs {
            fn score(
                &mut self,
                completions: &[Completion<'_>],
                _: &mut Backends<'_>,
            ) -> Result<Vec<Vec<Verdict>>, BoxError> {
                let label = || Verdict {
                    reward: Some(1.0),
                    credit: Credit::AdvantageSign,
                    ..Verdict::default()
                };
                Ok(completions
                    .iter()
                    .map(|one| one.sentences.iter().map(|_| label()).collect())
                    .collect())
            }
        }
        let rome = sentences(&["Rome"]);
        let mut blend =
            Blend::new(vec![weighted("a", 1.0, Pays(2.0)), weighted("signs", 1.0, Signs)]);
        let error = blend
            .score(&[completion(&rome)], &mut Backends::counting(Dictionary))
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("signs does not pay whole sentences"), "{error}");
    }

    #[test]
    fn verdict_shape_must_match_completions() {
        let [two, one] = [sentences(&["Rome", "Italy"]), sentences(&["Rome"])];
        let completions = [completion(&two), completion(&one)];
        let verdicts = |lengths: [usize; 2]| lengths.map(|length| vec![Verdict::default(); length]);
        assert!(check_shape("a", &completions, &verdicts([2, 1])).is_ok());
        let message =
            |lengths| check_shape("a", &completions, &verdicts(lengths)).unwrap_err().to_string();
        assert_eq!(message([2, 0]), "a gave 2 verdicts for 3 sentences");
        assert!(message([1, 2]).ends_with("not in the completions that they belong to"));
    }
}

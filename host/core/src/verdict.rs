//! Stage 6: sentences and the replies about them → verdicts. The reward rule decides; the host only
//! calls it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{Backends, BoxError, Capability, Completion, Exchange, Lookup};

/// A rule's reward for one sentence, with the requests that led to it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SentenceVerdict {
    /// Reward before λ_c, finite. `None`: the rule abstained, and the reward is 0.
    pub reward: Option<f32>,
    /// Count that decided the reward. `None`: no count decided it.
    pub count: Option<u64>,
    /// Index of the triplet that decided the reward.
    pub triplet: Option<u32>,
    /// Explanation in the rule's own words.
    pub note: Option<String>,
    /// Tokens that receive the reward.
    #[serde(default, skip_serializing_if = "Credit::is_sentence")]
    pub credit: Credit,
    /// Queries of the rule about this sentence with their counts, each once, in the order requested.
    pub lookups: Vec<Lookup>,
    /// All other requests about it with their replies, each once, in the order requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exchanges: Vec<Exchange>,
    /// Verdicts of the rules of a [`Blend`]; empty if there is only one rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<Channel>,
}

/// Assignment of a sentence's reward to its tokens.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Credit {
    /// Every token of the sentence receives the reward.
    #[default]
    Sentence,
    /// Single tokens receive parts of the reward.
    TokenRewards(Vec<TokenReward>),
    /// No token receives the reward: the advantages of the sentence's tokens take its sign, as in
    /// FSPO.
    AdvantageSign,
}

/// The kind of [`Credit`] that a rule's verdicts use. A rule declares it, so that a run which cannot
/// use it is refused before it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CreditKind {
    /// Every token of the sentence receives the reward.
    AllTokens,
    /// Verdicts may have [`Credit::TokenRewards`].
    TokenRewards,
    /// Verdicts may have [`Credit::AdvantageSign`].
    AdvantageSign,
}

impl Credit {
    fn is_sentence(&self) -> bool {
        *self == Self::Sentence
    }
}

/// A part of a sentence's reward that is credited to a single token.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TokenReward {
    /// Character of the sentence, counted from 0; the token that holds it receives the reward.
    pub character: u32,
    /// Reward before λ_c, finite.
    pub reward: f32,
}

/// One rule's part of a [`Blend`]'s verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Channel {
    /// Name of the rule.
    pub rule: String,
    /// Factor of the rule's reward.
    pub weight: f64,
    /// Reward before the weight. `None`: the rule abstained.
    pub reward: Option<f32>,
    /// Count that decided the reward. `None`: no count decided it.
    pub count: Option<u64>,
    /// Index of the triplet that decided the reward.
    pub triplet: Option<u32>,
    /// Explanation in the rule's own words.
    pub note: Option<String>,
}

/// A reward rule for sentences.
pub trait SentenceScorer: Send {
    /// Returns the capabilities that the rule needs in addition to counts.
    fn required_capabilities(&self) -> Vec<Capability> {
        Vec::new()
    }

    /// Returns true if the rule reads triplets; if not, none are extracted for it.
    fn reads_triplets(&self) -> bool {
        true
    }

    /// Returns the kind of credit that its verdicts use.
    fn credit(&self) -> CreditKind {
        CreditKind::AllTokens
    }

    /// Returns one verdict per sentence of each completion, in order.
    ///
    /// # Errors
    /// Fails if the rule breaks its contract or a limit, or a backend fails; no verdict is returned
    /// then.
    fn score(
        &mut self,
        completions: &[Completion<'_>],
        backends: &mut Backends<'_>,
    ) -> Result<Vec<Vec<SentenceVerdict>>, BoxError>;
}

/// One rule of a [`Blend`].
pub struct Weighted {
    /// Name of its channel.
    pub name: String,
    /// Factor of its rewards, finite.
    pub weight: f64,
    /// Rule that scores the sentences.
    pub rule: Box<dyn SentenceScorer>,
}

/// Several sentence rules as one.
///
/// A sentence receives the weighted sum of their rewards. A rule that abstains adds nothing; if all
/// abstain, so does the blend. The first rule with a count decides if the sentence is supported. A
/// rule with another [`Credit`] than the sentence cannot be part of a blend. A rule of weight 0
/// watches: it has a channel and no influence.
pub struct Blend(Vec<Weighted>);

impl Blend {
    /// Joins rules in this order. The verdicts of a single rule are weighted, and have no channels
    /// unless it watches.
    #[must_use]
    pub fn new(rules: Vec<Weighted>) -> Self {
        Self(rules)
    }
}

impl SentenceScorer for Blend {
    fn required_capabilities(&self) -> Vec<Capability> {
        let mut capabilities = BTreeSet::new();
        for weighted in &self.0 {
            capabilities.extend(weighted.rule.required_capabilities());
        }
        capabilities.into_iter().collect()
    }

    fn reads_triplets(&self) -> bool {
        self.0.iter().any(|weighted| weighted.rule.reads_triplets())
    }

    fn score(
        &mut self,
        completions: &[Completion<'_>],
        backends: &mut Backends<'_>,
    ) -> Result<Vec<Vec<SentenceVerdict>>, BoxError> {
        let has_channels = self.0.len() > 1 || self.0.iter().any(|rule| rule.weight == 0.0);
        let mut blended = no_verdicts(completions);
        for Weighted { name, weight, rule } in &mut self.0 {
            let verdicts = rule.score(completions, backends)?;
            check_shape(name, completions, &verdicts)?;
            for (sum, verdict) in blended.iter_mut().flatten().zip(verdicts.into_iter().flatten()) {
                let channel = sum.add(name, *weight, verdict)?;
                if has_channels {
                    sum.channels.push(channel);
                }
            }
        }
        Ok(blended)
    }
}

fn no_verdicts(completions: &[Completion<'_>]) -> Vec<Vec<SentenceVerdict>> {
    completions
        .iter()
        .map(|completion| vec![SentenceVerdict::default(); completion.sentences.len()])
        .collect()
}

/// Fails unless there is one verdict per sentence of every completion.
pub(crate) fn check_shape(
    rule: &str,
    completions: &[Completion<'_>],
    verdicts: &[Vec<SentenceVerdict>],
) -> Result<(), BoxError> {
    let lengths = completions.iter().map(|completion| completion.sentences.len());
    if lengths.clone().eq(verdicts.iter().map(Vec::len)) {
        return Ok(());
    }
    let expected: usize = lengths.sum();
    let got: usize = verdicts.iter().map(Vec::len).sum();
    let shape = if expected == got { ", not in the completions that they belong to" } else { "" };
    Err(format!("{rule} gave {got} verdicts for {expected} sentences{shape}").into())
}

/// Appends an item that the list does not have.
pub fn push_new<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

impl SentenceVerdict {
    /// Returns the sign that the advantages of the sentence's tokens take, 1 or −1; 0 if they keep
    /// their own.
    #[must_use]
    pub fn advantage_sign(&self) -> i8 {
        match (&self.credit, self.reward) {
            (Credit::AdvantageSign, Some(reward)) if reward > 0.0 => 1,
            (Credit::AdvantageSign, Some(reward)) if reward < 0.0 => -1,
            _ => 0,
        }
    }

    /// Adds one rule's verdict, and returns its channel.
    fn add(&mut self, rule: &str, weight: f64, verdict: Self) -> Result<Channel, BoxError> {
        let Self { reward, count, triplet, note, credit, lookups, exchanges, .. } = verdict;
        if credit != Credit::Sentence {
            return Err(format!(
                "{rule} assigns rewards to single tokens or sets the signs of advantages, which \
                 cannot be weighted or added to other rules; use it alone with a weight of 1"
            )
            .into());
        }
        let is_watched = weight == 0.0;
        if let Some(reward) = reward
            && !is_watched
        {
            let sum = (f64::from(self.reward.unwrap_or(0.0)) + weight * f64::from(reward)) as f32;
            if !sum.is_finite() {
                return Err(format!(
                    "{weight} times the reward {reward} of {rule} makes a sentence's reward {sum}"
                )
                .into());
            }
            self.reward = Some(sum);
        }
        if self.count.is_none() && !is_watched {
            (self.count, self.triplet) = (count, triplet);
        }
        for lookup in lookups {
            push_new(&mut self.lookups, lookup);
        }
        for exchange in exchanges {
            push_new(&mut self.exchanges, exchange);
        }
        Ok(Channel { rule: rule.to_owned(), weight, reward, count, triplet, note })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CorpusInfo, Count, Counter, Query, Section, Sentence};

    /// Rewards sentences whose text has a count.
    struct RewardsKnown(f32);

    impl SentenceScorer for RewardsKnown {
        fn score(
            &mut self,
            completions: &[Completion<'_>],
            backends: &mut Backends<'_>,
        ) -> Result<Vec<Vec<SentenceVerdict>>, BoxError> {
            let mut verdict = |sentence: &Sentence| {
                let query = Query::new([[&sentence.text]]);
                let count = backends.count(std::slice::from_ref(&query))?[0];
                Ok(SentenceVerdict {
                    reward: count.occurrences.map(|_| self.0),
                    count: count.occurrences,
                    lookups: vec![Lookup { query, count }],
                    ..SentenceVerdict::default()
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
        ) -> Result<Vec<Vec<SentenceVerdict>>, BoxError> {
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

        fn info(&self) -> CorpusInfo {
            CorpusInfo::default()
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
            weighted("a", 0.75, RewardsKnown(2.0)),
            weighted("b", 0.5, RewardsKnown(-1.0)),
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
    fn rule_of_weight_zero_has_a_channel_and_no_influence() {
        let rome = sentences(&["Rome"]);
        let watched = || weighted("watched", 0.0, RewardsKnown(2.0));
        for rules in [vec![weighted("shy", 1.0, Abstains), watched()], vec![watched()]] {
            let verdicts = Blend::new(rules)
                .score(&[completion(&rome)], &mut Backends::counting(Dictionary))
                .unwrap();
            let verdict = &verdicts[0][0];
            assert_eq!((verdict.reward, verdict.count), (None, None));
            let channel = verdict.channels.last().unwrap();
            assert_eq!((channel.weight, channel.reward), (0.0, Some(2.0)));
        }
    }

    #[test]
    fn single_rule_blend_is_weighted_and_rejects_infinity() {
        let rome = sentences(&["Rome"]);
        let mut halved = Blend::new(vec![weighted("a", 0.5, RewardsKnown(2.0))]);
        let verdict =
            &halved.score(&[completion(&rome)], &mut Backends::counting(Dictionary)).unwrap()[0][0];
        assert_eq!((verdict.reward, verdict.channels.len()), (Some(1.0), 0));
        let mut endless = Blend::new(vec![weighted("a", 1e300, RewardsKnown(2.0))]);
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
            ) -> Result<Vec<Vec<SentenceVerdict>>, BoxError> {
                let label = || SentenceVerdict {
                    reward: Some(1.0),
                    credit: Credit::AdvantageSign,
                    ..SentenceVerdict::default()
                };
                Ok(completions
                    .iter()
                    .map(|one| one.sentences.iter().map(|_| label()).collect())
                    .collect())
            }
        }
        let rome = sentences(&["Rome"]);
        let mut blend =
            Blend::new(vec![weighted("a", 1.0, RewardsKnown(2.0)), weighted("signs", 1.0, Signs)]);
        let error = blend
            .score(&[completion(&rome)], &mut Backends::counting(Dictionary))
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("signs assigns rewards to single tokens or sets the signs"),
            "{error}"
        );
    }

    #[test]
    fn verdict_shape_must_match_completions() {
        let [two, one] = [sentences(&["Rome", "Italy"]), sentences(&["Rome"])];
        let completions = [completion(&two), completion(&one)];
        let verdicts =
            |lengths: [usize; 2]| lengths.map(|length| vec![SentenceVerdict::default(); length]);
        assert!(check_shape("a", &completions, &verdicts([2, 1])).is_ok());
        let message =
            |lengths| check_shape("a", &completions, &verdicts(lengths)).unwrap_err().to_string();
        assert_eq!(message([2, 0]), "a gave 2 verdicts for 3 sentences");
        assert!(message([1, 2]).ends_with("not in the completions that they belong to"));
    }
}

//! Stage 7: verdicts + spans → per-token returns.
//!
//! R_t = λ_j R^j + λ_f R^f + 1[σ(t) > 0] · λ_c · r_σ(t) (paper, Eq. token reward). The ablations
//! change this line only. r_σ(t) is the reward of the token's sentence, unless the verdict has
//! another [`Credit`]: then single tokens receive parts of it, or none does and the advantages take
//! its sign ([`advantage_signs`]).

use std::collections::BTreeMap;
use std::ops::Range;

use crate::{
    Alignment, Credit, Granularity, ResponseGrades, RewardSettings, Rollout, Sentence,
    SentenceMean, SentenceVerdict, TokenReward,
};

/// Reward of a sentence.
#[derive(Debug, Clone, PartialEq)]
pub struct SentenceReward {
    /// The rule's reward; 0 if it abstained, or gave a sign for the advantages.
    pub reward: f64,
    /// True if a count decided it.
    pub counted: bool,
    /// Part of the reward by the token that receives it. `None`: every token of the sentence receives
    /// all of it.
    pub shares: Option<BTreeMap<usize, f64>>,
}

impl SentenceReward {
    /// Returns the reward of a sentence whose tokens are those of `tokens` that are aligned to it.
    fn new(
        verdict: &SentenceVerdict,
        sentence: &Sentence,
        tokens: Option<Range<usize>>,
        rollout: &Rollout,
    ) -> Self {
        let counted = verdict.count.is_some();
        let reward = match verdict.credit {
            Credit::AdvantageSign => 0.0,
            Credit::Sentence | Credit::TokenRewards(_) => verdict.reward.map_or(0.0, f64::from),
        };
        let Credit::TokenRewards(parts) = &verdict.credit else {
            return Self { reward, counted, shares: None };
        };
        let mut shares = BTreeMap::new();
        if let Some(tokens) = tokens {
            let starts = smallest_starts(&rollout.token_spans[tokens.clone()]);
            for part in parts {
                let token = token_of(part, sentence, tokens.clone(), &starts);
                *shares.entry(token).or_default() += f64::from(part.reward);
            }
        }
        Self { reward, counted, shares: Some(shares) }
    }

    /// Returns the reward of a token of the sentence.
    fn of_token(&self, token: usize) -> f64 {
        match &self.shares {
            None => self.reward,
            Some(shares) => shares.get(&token).copied().unwrap_or(0.0),
        }
    }
}

/// Returns the reward of each sentence of a completion.
#[must_use]
pub fn sentence_rewards(
    verdicts: &[SentenceVerdict],
    sentences: &[Sentence],
    alignment: &Alignment,
    rollout: &Rollout,
) -> Vec<SentenceReward> {
    let mut rewards = Vec::with_capacity(verdicts.len());
    let token_spans = alignment.token_spans(sentences.len());
    for ((verdict, sentence), tokens) in verdicts.iter().zip(sentences).zip(token_spans) {
        rewards.push(SentenceReward::new(verdict, sentence, tokens, rollout));
    }
    rewards
}

/// Returns the token that holds a token reward's character: the last of the sentence's tokens that
/// begins at or before it. It is the last token if the sentence's span is not known. `starts` are the
/// [`smallest_starts`] of the sentence's tokens.
fn token_of(
    part: &TokenReward,
    sentence: &Sentence,
    tokens: Range<usize>,
    starts: &[usize],
) -> usize {
    let Some(span) = &sentence.span else { return tokens.end - 1 };
    let character = span.start + part.character as usize;
    let num_begun = starts.partition_point(|start| *start <= character);
    tokens.start + num_begun.saturating_sub(1)
}

/// Returns for each token the first character of it and of all later tokens. The numbers ascend, also
/// if the spans do not, so that [`token_of`] can search them.
fn smallest_starts(spans: &[Option<Range<usize>>]) -> Vec<usize> {
    let mut starts = Vec::with_capacity(spans.len());
    let mut smallest = usize::MAX;
    for span in spans.iter().rev() {
        smallest = span.as_ref().map_or(smallest, |span| smallest.min(span.start));
        starts.push(smallest);
    }
    starts.reverse();
    starts
}

/// Returns `[T]` 1 or −1 for the tokens of sentences whose advantages take a sign from the rule, else
/// 0: see [`crate::advantage::take_signs`].
#[must_use]
pub fn advantage_signs(verdicts: &[SentenceVerdict], alignment: &Alignment) -> Vec<i8> {
    let mut signs = Vec::with_capacity(alignment.sentence_of.len());
    for sentence in &alignment.sentence_of {
        let verdict = sentence.and_then(|index| verdicts.get(index));
        signs.push(verdict.map_or(0, SentenceVerdict::advantage_sign));
    }
    signs
}

/// Returns `[T]` the return of each token of one completion. `sentences` has one entry per sentence,
/// or is empty if the sentences were not scored.
#[must_use]
pub fn token_returns(
    grades: &ResponseGrades,
    alignment: &Alignment,
    sentences: &[SentenceReward],
    settings: &RewardSettings,
) -> Vec<f64> {
    let base = response_return(grades, settings);
    let num_tokens = alignment.sentence_of.len();
    match settings.granularity {
        Granularity::Response => {
            let scalar = response_scalar(settings.sentence_mean, alignment, sentences);
            vec![base + settings.lambda_corver * scalar; num_tokens]
        }
        Granularity::Token => {
            let mut returns = vec![base; num_tokens];
            for (token, sentence) in alignment.sentence_of.iter().enumerate() {
                if let Some(sentence) = sentence.and_then(|index| sentences.get(index)) {
                    returns[token] += settings.lambda_corver * sentence.of_token(token);
                }
            }
            returns
        }
    }
}

/// Returns `[T]` the part of each token's return that a rule gave to this token alone.
#[must_use]
pub fn token_rewards(
    alignment: &Alignment,
    sentences: &[SentenceReward],
    settings: &RewardSettings,
) -> Vec<f64> {
    let mut rewards = vec![0.0; alignment.sentence_of.len()];
    if settings.granularity == Granularity::Response {
        return rewards;
    }
    for (token, sentence) in alignment.sentence_of.iter().enumerate() {
        let Some(sentence) = sentence.and_then(|index| sentences.get(index)) else { continue };
        if sentence.shares.is_some() {
            rewards[token] = settings.lambda_corver * sentence.of_token(token);
        }
    }
    rewards
}

/// Returns the part of the return that every token of a completion shares.
#[must_use]
pub fn response_return(grades: &ResponseGrades, settings: &RewardSettings) -> f64 {
    settings.lambda_judge * grades.judge.reward + settings.lambda_format * grades.format.reward
}

/// Returns the mean of the sentence rewards that ablation A3 gives to every token.
fn response_scalar(mean: SentenceMean, alignment: &Alignment, sentences: &[SentenceReward]) -> f64 {
    let mut total = 0.0;
    let mut counted = 0;
    let mut counted_total = 0.0;
    for sentence in sentences {
        total += sentence.reward;
        if sentence.counted {
            counted += 1;
            counted_total += sentence.reward;
        }
    }
    match mean {
        SentenceMean::Total => total,
        SentenceMean::OverSentences => average(total, sentences.len()),
        SentenceMean::OverCounted => average(counted_total, counted),
        SentenceMean::TokenWeighted => {
            let mut of_tokens = 0.0;
            for (token, sentence) in alignment.sentence_of.iter().enumerate() {
                if let Some(sentence) = sentence.and_then(|index| sentences.get(index)) {
                    of_tokens += sentence.of_token(token);
                }
            }
            average(of_tokens, alignment.sentence_of.len())
        }
    }
}

/// Returns the mean of `count` values; 0 if there is none.
fn average(total: f64, count: usize) -> f64 {
    if count == 0 { 0.0 } else { total / count as f64 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::TextSettings;
    use crate::response::Grade;
    use crate::sentence::Section;

    fn right() -> ResponseGrades {
        ResponseGrades { judge: Grade::new(2.0, "GOOD"), format: Grade::new(1.0, "OK") }
    }

    fn alignment(sentence_of: &[Option<usize>]) -> Alignment {
        Alignment { sentence_of: sentence_of.to_vec(), rate: 1.0 }
    }

    fn rewards(list: &[(f64, bool)]) -> Vec<SentenceReward> {
        list.iter()
            .map(|&(reward, counted)| SentenceReward { reward, counted, shares: None })
            .collect()
    }

    #[test]
    fn token_return_adds_its_sentence_reward() {
        let returns = token_returns(
            &right(),
            &alignment(&[None, Some(0), Some(1)]),
            &rewards(&[(0.1, true), (-0.3, true)]),
            &RewardSettings::default(),
        );
        assert_eq!(returns, [3.0, 3.1, 2.7]);
    }

    #[test]
    fn response_granularity_spreads_mean_sentence_reward() {
        let sentences = rewards(&[(0.1, true), (-0.3, true), (0.0, false)]);
        let alignment = alignment(&[None, Some(0), Some(0), Some(1)]);
        for (sentence_mean, expected) in [
            (SentenceMean::OverSentences, 3.0 - 0.2 / 3.0),
            (SentenceMean::OverCounted, 2.9),
            (SentenceMean::Total, 2.8),
            (SentenceMean::TokenWeighted, 3.0 - 0.1 / 4.0),
        ] {
            let granularity = Granularity::Response;
            let settings =
                RewardSettings { granularity, sentence_mean, ..RewardSettings::default() };
            for value in token_returns(&right(), &alignment, &sentences, &settings) {
                assert!((value - expected).abs() < 1e-12, "{sentence_mean:?}: {value}");
            }
        }
    }

    #[test]
    fn zero_weight_drops_reward_term() {
        let sentences = rewards(&[(0.1, true), (-0.3, true)]);
        let alignment = alignment(&[None, Some(0), Some(1)]);
        let without_judge = RewardSettings { lambda_judge: 0.0, ..RewardSettings::default() };
        let returns = token_returns(&right(), &alignment, &sentences, &without_judge);
        assert_eq!(returns, [1.0, 1.1, 0.7]);
        let without_rule = RewardSettings { lambda_corver: 0.0, ..RewardSettings::default() };
        assert!(!without_rule.sentence_rewards_enabled());
        let returns = token_returns(&right(), &alignment, &sentences, &without_rule);
        assert_eq!(returns, [3.0; 3]);
    }

    #[test]
    fn token_rewards_reach_tokens_at_their_characters() {
        // “Rome is old.” after a tag, in tokens of Rome| is| old|. and one that a character is
        // split over.
        let text = "<think>Rome is old.".to_owned();
        let token_spans = [0..7, 7..11, 11..14, 14..18, 18..19].map(Some).to_vec();
        let rollout = Rollout { token_spans, ..Rollout::of_text(0, text) };
        let split = crate::split::split(&rollout.text, TextSettings::default());
        let alignment = crate::sentence::align(&split, &rollout.token_spans);
        let points = [(0, 1.0), (11, 4.0), (9, 2.0), (10, 0.5), (99, 8.0)]
            .map(|(character, reward)| TokenReward { character, reward });
        let verdict = SentenceVerdict {
            reward: Some(15.5),
            credit: Credit::TokenRewards(points.to_vec()),
            ..SentenceVerdict::default()
        };
        let rewards = sentence_rewards(&[verdict], &split.sentences, &alignment, &rollout);
        let settings =
            RewardSettings { lambda_judge: 0.0, lambda_format: 0.0, ..RewardSettings::default() };
        assert_eq!(
            token_returns(&right(), &alignment, &rewards, &settings),
            [0.0, 1.0, 0.0, 2.5, 12.0]
        );
        let with_judge = RewardSettings::default();
        assert_eq!(token_rewards(&alignment, &rewards, &with_judge), [0.0, 1.0, 0.0, 2.5, 12.0]);
    }

    #[test]
    fn sign_credit_adds_no_return() {
        let alignment = alignment(&[None, Some(0), Some(1), Some(2)]);
        let label = |reward: f32| SentenceVerdict {
            reward: Some(reward),
            credit: Credit::AdvantageSign,
            ..SentenceVerdict::default()
        };
        let verdicts = [
            label(1.0),
            label(-0.5),
            SentenceVerdict { reward: Some(1.0), ..SentenceVerdict::default() },
        ];
        assert_eq!(advantage_signs(&verdicts, &alignment), [0, 1, -1, 0]);
        let sentences = crate::split::split("A. B. C.", TextSettings::default()).sentences;
        let rewards = sentence_rewards(
            &verdicts,
            &sentences,
            &alignment,
            &Rollout::of_text(0, "A. B. C.".into()),
        );
        assert_eq!(
            token_returns(&right(), &alignment, &rewards, &RewardSettings::default()),
            [3.0, 3.0, 3.0, 4.0]
        );
    }

    #[test]
    fn returns_without_sentence_rewards_equal_response_reward() {
        let returns =
            token_returns(&right(), &alignment(&[Some(0), None]), &[], &RewardSettings::default());
        assert_eq!(returns, [3.0, 3.0]);
    }
    proptest! {
        /// The definition: the last token that begins at or before the character, else the first.
        #[test]
        fn token_reward_goes_to_the_token_of_its_character(
            starts in proptest::collection::vec(proptest::option::of(0usize..20), 1..12),
            character in 0u32..20,
        ) {
            let spans: Vec<Option<Range<usize>>> =
                starts.iter().map(|start| start.map(|start| start..start + 1)).collect();
            let sentence =
                Sentence { text: "a".into(), section: Section::Body, span: Some(0..20), triplets: vec![] };
            let part = TokenReward { character, reward: 1.0 };
            let begun = |start: &Option<usize>| start.is_some_and(|start| start <= character as usize);
            let expected = starts.iter().rposition(begun).unwrap_or(0);
            let found = token_of(&part, &sentence, 0..starts.len(), &smallest_starts(&spans));
            prop_assert_eq!(found, expected);
        }
    }
}

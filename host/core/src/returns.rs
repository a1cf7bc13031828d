//! Stage 7: verdicts + spans → per-token returns.
//!
//! R_t = λ_j R^j + λ_f R^f + 1[σ(t) > 0] · λ_c · r_σ(t) (paper, Eq. token reward). The ablations
//! change this line only. r_σ(t) is the sentence's reward, unless the verdict's [`Credit`] says
//! otherwise: single tokens then earn shares of it, or none earns it and [`token_labels`] hands its
//! sign to the advantages.

use std::ops::Range;

use serde::Serialize;

use crate::{
    Ablation, Alignment, Credit, Point, ResponseGrades, RewardSettings, Rollout, Sentence,
    SentenceMean, SentenceTrace, Trace, Verdict,
};

/// What a sentence earned.
#[derive(Debug, Clone, PartialEq)]
pub struct SentenceReward {
    /// As the rule said; 0 where it abstained, or gave a label.
    pub reward: f64,
    /// Whether a count decided it.
    pub counted: bool,
    /// The tokens that earn shares of it; `None`: each of the sentence's earns it whole.
    pub shares: Option<Vec<(usize, f64)>>,
}

impl SentenceReward {
    /// Of `sentence`, whose tokens are those of `tokens` that `rollout` aligned.
    fn of(
        verdict: &Verdict,
        sentence: &Sentence,
        tokens: Option<Range<usize>>,
        rollout: &Rollout,
    ) -> Self {
        let counted = verdict.count.is_some();
        let reward = if verdict.credit == Credit::Sign {
            0.0
        } else {
            verdict.reward.map_or(0.0, f64::from)
        };
        let shares = match &verdict.credit {
            Credit::Sentence | Credit::Sign => None,
            Credit::Points(points) => {
                let share = |point: &Point| {
                    Some((
                        token_of(point, sentence, tokens.clone()?, &rollout.token_spans),
                        f64::from(point.reward),
                    ))
                };
                Some(points.iter().filter_map(share).collect())
            }
        };
        Self { reward, counted, shares }
    }

    /// What a token of the sentence earns.
    fn of_token(&self, token: usize) -> f64 {
        match &self.shares {
            None => self.reward,
            Some(shares) => {
                shares.iter().filter(|(of, _)| *of == token).map(|(_, share)| share).sum()
            }
        }
    }
}

/// What each sentence of a completion earned.
#[must_use]
pub fn sentence_rewards(
    verdicts: &[Verdict],
    sentences: &[Sentence],
    alignment: &Alignment,
    rollout: &Rollout,
) -> Vec<SentenceReward> {
    let of = |(index, (verdict, sentence)): (usize, (&Verdict, &Sentence))| {
        SentenceReward::of(verdict, sentence, alignment.tokens_of(index), rollout)
    };
    verdicts.iter().zip(sentences).enumerate().map(of).collect()
}

/// The token that holds the point's character: the last of the sentence's tokens that begins at or
/// before it. A sentence whose place in the completion is not known is paid at its last token.
fn token_of(
    point: &Point,
    sentence: &Sentence,
    tokens: Range<usize>,
    spans: &[Option<Range<usize>>],
) -> usize {
    let last = tokens.end - 1;
    let Some(span) = &sentence.span else { return last };
    let character = span.start + point.character as usize;
    let begins = |token: &usize| spans[*token].as_ref().is_some_and(|span| span.start <= character);
    tokens.clone().rev().find(begins).unwrap_or(tokens.start)
}

/// `[T]` 1 or −1 for the tokens of sentences that a rule labelled, else 0: see
/// [`crate::advantage::take_signs`].
#[must_use]
pub fn token_labels(verdicts: &[Verdict], alignment: &Alignment) -> Vec<i8> {
    let label = |sentence: &Option<usize>| {
        sentence.and_then(|index| verdicts.get(index)).map_or(0, Verdict::label)
    };
    alignment.sentence_of.iter().map(label).collect()
}

/// `[T]` the return of each token of one completion.
///
/// `sentences` has one entry per sentence, or is empty where the sentence signal was dropped.
#[must_use]
pub fn token_returns(
    grades: &ResponseGrades,
    alignment: &Alignment,
    sentences: &[SentenceReward],
    settings: &RewardSettings,
) -> Vec<f64> {
    let base = response_return(grades, settings);
    let of_token = |(token, sentence): (usize, &Option<usize>)| {
        let sentence = sentence.and_then(|index| sentences.get(index));
        base + sentence.map_or(0.0, |sentence| settings.lambda_corver * sentence.of_token(token))
    };
    match settings.ablation {
        Ablation::NoCooccurrence => vec![base; alignment.sentence_of.len()],
        Ablation::ResponseLevel => {
            let scalar = settings.lambda_corver
                * response_scalar(settings.sentence_mean, alignment, sentences);
            vec![base + scalar; alignment.sentence_of.len()]
        }
        Ablation::None | Ablation::NoJudge => {
            alignment.sentence_of.iter().enumerate().map(of_token).collect()
        }
    }
}

/// `[T]` what of each token's return it earned by itself, as a point of its sentence; 0 where none
/// did.
#[must_use]
pub fn token_points(
    alignment: &Alignment,
    sentences: &[SentenceReward],
    settings: &RewardSettings,
) -> Vec<f64> {
    let of_token = |(token, sentence): (usize, &Option<usize>)| {
        let sentence = sentence
            .and_then(|index| sentences.get(index))
            .filter(|sentence| sentence.shares.is_some());
        sentence.map_or(0.0, |sentence| settings.lambda_corver * sentence.of_token(token))
    };
    match settings.ablation {
        Ablation::NoCooccurrence | Ablation::ResponseLevel => {
            vec![0.0; alignment.sentence_of.len()]
        }
        Ablation::None | Ablation::NoJudge => {
            alignment.sentence_of.iter().enumerate().map(of_token).collect()
        }
    }
}

/// What every token of a completion earns, whatever it says.
#[must_use]
pub fn response_return(grades: &ResponseGrades, settings: &RewardSettings) -> f64 {
    let judge = if settings.ablation == Ablation::NoJudge {
        0.0
    } else {
        settings.lambda_judge * grades.judge.reward
    };
    judge + settings.lambda_format * grades.format.reward
}

/// What a completion's mean return is the sum of, weights included.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ReturnParts {
    /// The judge's part.
    pub judge: f64,
    /// The format check's.
    pub format: f64,
    /// The sentence rewards, averaged as the tokens are paid.
    pub sentences: f64,
}

impl ReturnParts {
    /// Those of a trace, under the settings that it was paid with.
    #[must_use]
    pub fn of(trace: &Trace, settings: &RewardSettings) -> Self {
        let of_response = response_return(&trace.response, settings);
        let format = settings.lambda_format * trace.response.format.reward;
        // Without the noise of the subtractions, and without −0.
        let rounded = |value: f64| (value * 1e9).round() / 1e9 + 0.0;
        Self {
            judge: rounded(of_response - format),
            format,
            sentences: rounded(trace.mean_return - of_response),
        }
    }
}

/// A trace with what adds up to its return, as results are printed.
#[derive(Debug, Serialize)]
pub struct Explained<'a> {
    /// Why the completion earned it.
    #[serde(flatten)]
    pub trace: &'a Trace,
    /// What its mean return is the sum of.
    pub return_parts: ReturnParts,
}

impl<'a> Explained<'a> {
    /// Of a trace, under the settings that it was paid with.
    #[must_use]
    pub fn of(trace: &'a Trace, settings: &RewardSettings) -> Self {
        Self { trace, return_parts: ReturnParts::of(trace, settings) }
    }
}

/// The returns of a completion's tokens, as far as its trace tells them: all tokens of a sentence
/// share one. Where single tokens earn a reward, it is the mean over the sentence's.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TracedReturns {
    /// Of tokens that belong to no sentence.
    pub outside: f64,
    /// Of each sentence's tokens, in the order of the trace.
    pub sentences: Vec<f64>,
    /// Of each sentence: the sign that its tokens' advantages take, 1 or −1; 0 where they keep
    /// their own.
    pub labels: Vec<i8>,
}

/// What [`token_returns`] paid the tokens of `trace` under these settings.
#[must_use]
pub fn traced_returns(trace: &Trace, settings: &RewardSettings) -> TracedReturns {
    let base = response_return(&trace.response, settings);
    let outside = match settings.ablation {
        // Every token is paid alike.
        Ablation::ResponseLevel => trace.mean_return,
        Ablation::None | Ablation::NoJudge | Ablation::NoCooccurrence => base,
    };
    let of_sentence = |sentence: &SentenceTrace| match settings.ablation {
        Ablation::None | Ablation::NoJudge => {
            base + settings.lambda_corver * sentence.reward_per_token()
        }
        Ablation::ResponseLevel | Ablation::NoCooccurrence => outside,
    };
    let label = |sentence: &SentenceTrace| sentence.verdict.as_ref().map_or(0, Verdict::label);
    TracedReturns {
        outside,
        sentences: trace.sentences.iter().map(of_sentence).collect(),
        labels: trace.sentences.iter().map(label).collect(),
    }
}

fn response_scalar(mean: SentenceMean, alignment: &Alignment, sentences: &[SentenceReward]) -> f64 {
    let average = |total: f64, count: usize| if count == 0 { 0.0 } else { total / count as f64 };
    let total = sentences.iter().map(|sentence| sentence.reward).sum::<f64>();
    match mean {
        SentenceMean::Total => total,
        SentenceMean::OverSentences => average(total, sentences.len()),
        SentenceMean::OverCounted => {
            let counted = || sentences.iter().filter(|sentence| sentence.counted);
            average(counted().map(|sentence| sentence.reward).sum(), counted().count())
        }
        SentenceMean::TokenWeighted => {
            let of_token = |(token, sentence): (usize, &Option<usize>)| {
                Some(sentences.get((*sentence)?)?.of_token(token))
            };
            let paid = alignment.sentence_of.iter().enumerate().filter_map(of_token).sum();
            average(paid, alignment.sentence_of.len())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Compatibility;
    use crate::response::Grade;

    fn right() -> ResponseGrades {
        ResponseGrades { judge: Grade::new(2.0, "GOOD"), format: Grade::new(1.0, "KEPT") }
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
    fn a_token_earns_its_sentence() {
        let returns = token_returns(
            &right(),
            &alignment(&[None, Some(0), Some(1)]),
            &rewards(&[(0.1, true), (-0.3, true)]),
            &RewardSettings::default(),
        );
        assert_eq!(returns, [3.0, 3.1, 2.7]);
    }

    #[test]
    fn ablations_leave_out_what_they_say() {
        let of = |ablation, sentence_mean| {
            let settings = RewardSettings { ablation, sentence_mean, ..RewardSettings::default() };
            let sentences = rewards(&[(0.1, true), (-0.3, true), (0.0, false)]);
            token_returns(
                &right(),
                &alignment(&[None, Some(0), Some(0), Some(1)]),
                &sentences,
                &settings,
            )
        };
        let close = |returns: Vec<f64>, expected: f64| {
            returns.iter().all(|value| (value - expected).abs() < 1e-12)
        };
        assert!(close(of(Ablation::NoCooccurrence, SentenceMean::OverSentences), 3.0));
        assert_eq!(of(Ablation::NoJudge, SentenceMean::OverSentences), [1.0, 1.1, 1.1, 0.7]);
        assert!(close(of(Ablation::ResponseLevel, SentenceMean::OverSentences), 3.0 - 0.2 / 3.0));
        assert!(close(of(Ablation::ResponseLevel, SentenceMean::OverCounted), 2.9));
        assert!(close(of(Ablation::ResponseLevel, SentenceMean::Total), 2.8));
        assert!(close(of(Ablation::ResponseLevel, SentenceMean::TokenWeighted), 3.0 - 0.1 / 4.0));
    }

    #[test]
    fn shares_go_to_the_tokens_that_hold_their_characters() {
        // “Rome is old.” after a tag, in tokens of Rome| is| old|. and one that a character is
        // split over.
        let text = "<think>Rome is old.".to_owned();
        let token_spans = [0..7, 7..11, 11..14, 14..18, 18..19].map(Some).to_vec();
        let rollout = Rollout { token_spans, ..Rollout::of_text(0, text) };
        let split = crate::sentence::split(&rollout.text, Compatibility::Paper);
        let alignment = crate::sentence::align(&split, &rollout.token_spans);
        let points = [(0, 1.0), (11, 4.0), (9, 2.0), (10, 0.5), (99, 8.0)]
            .map(|(character, reward)| Point { character, reward });
        let verdict = Verdict {
            reward: Some(15.5),
            credit: Credit::Points(points.to_vec()),
            ..Verdict::default()
        };
        let rewards = sentence_rewards(&[verdict], &split.sentences, &alignment, &rollout);
        let settings =
            RewardSettings { lambda_judge: 0.0, lambda_format: 0.0, ..RewardSettings::default() };
        assert_eq!(
            token_returns(&right(), &alignment, &rewards, &settings),
            [0.0, 1.0, 0.0, 2.5, 12.0]
        );
        let with_judge = RewardSettings::default();
        assert_eq!(token_points(&alignment, &rewards, &with_judge), [0.0, 1.0, 0.0, 2.5, 12.0]);
    }

    #[test]
    fn a_label_pays_nothing() {
        let alignment = alignment(&[None, Some(0), Some(1), Some(2)]);
        let label = |reward: f32| Verdict {
            reward: Some(reward),
            credit: Credit::Sign,
            ..Verdict::default()
        };
        let verdicts =
            [label(1.0), label(-0.5), Verdict { reward: Some(1.0), ..Verdict::default() }];
        assert_eq!(token_labels(&verdicts, &alignment), [0, 1, -1, 0]);
        let sentences = crate::sentence::split("A. B. C.", Compatibility::Paper).sentences;
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
    fn a_dropped_signal_pays_the_response_alone() {
        let returns =
            token_returns(&right(), &alignment(&[Some(0), None]), &[], &RewardSettings::default());
        assert_eq!(returns, [3.0, 3.0]);
    }
}

//! Stage 7: verdicts + spans → per-token returns.
//!
//! R_t = λ_j R^j + λ_f R^f + 1[σ(t) > 0] · λ_c · r_σ(t)  (paper, Eq. token reward). The ablations change this line only.

use serde::{Deserialize, Serialize};

use crate::{Alignment, Compatibility, ResponseGrades, SentenceTrace, Trace};

/// What of the full method a run leaves out (paper, ablation table). A4, no self-filter, is a choice of data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ablation {
    /// The full method.
    #[default]
    None,
    /// A1: no co-occurrence term. Nothing is extracted or counted.
    NoCooccurrence,
    /// A2: no judge.
    NoJudge,
    /// A3: the sentence rewards become one scalar of the whole response; see [`SentenceMean`].
    ResponseLevel,
}

/// How A3 makes one scalar of a completion's sentence rewards. The paper's three descriptions of A3 contradict each
/// other, so each of its readings is here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SentenceMean {
    /// Mean over all sentences, neutral ones included.
    #[default]
    OverSentences,
    /// Mean over the sentences that had a count.
    OverCounted,
    /// Weighted by tokens, so that the completion's mean return equals the full method's.
    TokenWeighted,
    /// Sum over all sentences.
    Total,
}

/// Weights and switches of the reward.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RewardSettings {
    /// λ_j, weight of the judge.
    pub lambda_judge: f64,
    /// λ_f, weight of the format reward.
    pub lambda_format: f64,
    /// λ_c, weight of the sentence rewards.
    pub lambda_corver: f64,
    /// Below this alignment rate a completion's sentence rewards are dropped.
    pub min_alignment: f64,
    /// What is left out.
    pub ablation: Ablation,
    /// How A3 averages.
    pub sentence_mean: SentenceMean,
    /// Whose behaviour to follow where the paper and the published code differ.
    pub compatibility: Compatibility,
}

impl Default for RewardSettings {
    fn default() -> Self {
        Self {
            lambda_judge: 1.0,
            lambda_format: 1.0,
            lambda_corver: 1.0,
            min_alignment: 0.5,
            ablation: Ablation::None,
            sentence_mean: SentenceMean::OverSentences,
            compatibility: Compatibility::Paper,
        }
    }
}

impl RewardSettings {
    /// Whether any sentence reward can reach a token: if not, nothing need be extracted or counted.
    #[must_use]
    pub fn sentence_rewards_enabled(&self) -> bool {
        self.ablation != Ablation::NoCooccurrence && self.lambda_corver != 0.0
    }
}

/// What the sentences of one completion earned.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SentenceReward {
    /// As the rule said; 0 where it abstained.
    pub reward: f64,
    /// Whether a count decided it.
    pub counted: bool,
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
    let of_sentence = |sentence: &Option<usize>| {
        sentence.and_then(|index| sentences.get(index)).map_or(0.0, |sentence| settings.lambda_corver * sentence.reward)
    };
    match settings.ablation {
        Ablation::NoCooccurrence => vec![base; alignment.sentence_of.len()],
        Ablation::ResponseLevel => {
            let scalar = settings.lambda_corver * response_scalar(settings.sentence_mean, alignment, sentences);
            vec![base + scalar; alignment.sentence_of.len()]
        }
        Ablation::None | Ablation::NoJudge => {
            alignment.sentence_of.iter().map(|sentence| base + of_sentence(sentence)).collect()
        }
    }
}

/// What every token of a completion earns, whatever it says.
#[must_use]
pub fn response_return(grades: &ResponseGrades, settings: &RewardSettings) -> f64 {
    let judge = if settings.ablation == Ablation::NoJudge { 0.0 } else { settings.lambda_judge * grades.judge.reward };
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
        Self { judge: rounded(of_response - format), format, sentences: rounded(trace.mean_return - of_response) }
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

/// The returns of a completion's tokens, as far as its trace tells them: all tokens of a sentence share one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TracedReturns {
    /// Of tokens that belong to no sentence.
    pub outside: f64,
    /// Of each sentence's tokens, in the order of the trace.
    pub sentences: Vec<f64>,
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
        Ablation::None | Ablation::NoJudge => base + settings.lambda_corver * sentence.reward(),
        Ablation::ResponseLevel | Ablation::NoCooccurrence => outside,
    };
    TracedReturns { outside, sentences: trace.sentences.iter().map(of_sentence).collect() }
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
            let aligned = alignment.sentence_of.iter().flatten();
            let paid = aligned.filter_map(|index| sentences.get(*index)).map(|sentence| sentence.reward).sum();
            average(paid, alignment.sentence_of.len())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response::Grade;

    fn right() -> ResponseGrades {
        ResponseGrades { judge: Grade::new(2.0, "GOOD"), format: Grade::new(1.0, "KEPT") }
    }

    fn alignment(sentence_of: &[Option<usize>]) -> Alignment {
        Alignment { sentence_of: sentence_of.to_vec(), rate: 1.0 }
    }

    fn rewards(list: &[(f64, bool)]) -> Vec<SentenceReward> {
        list.iter().map(|&(reward, counted)| SentenceReward { reward, counted }).collect()
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
            token_returns(&right(), &alignment(&[None, Some(0), Some(0), Some(1)]), &sentences, &settings)
        };
        let close = |returns: Vec<f64>, expected: f64| returns.iter().all(|value| (value - expected).abs() < 1e-12);
        assert!(close(of(Ablation::NoCooccurrence, SentenceMean::OverSentences), 3.0));
        assert_eq!(of(Ablation::NoJudge, SentenceMean::OverSentences), [1.0, 1.1, 1.1, 0.7]);
        assert!(close(of(Ablation::ResponseLevel, SentenceMean::OverSentences), 3.0 - 0.2 / 3.0));
        assert!(close(of(Ablation::ResponseLevel, SentenceMean::OverCounted), 2.9));
        assert!(close(of(Ablation::ResponseLevel, SentenceMean::Total), 2.8));
        assert!(close(of(Ablation::ResponseLevel, SentenceMean::TokenWeighted), 3.0 - 0.1 / 4.0));
    }

    #[test]
    fn a_dropped_signal_pays_the_response_alone() {
        let returns = token_returns(&right(), &alignment(&[Some(0), None]), &[], &RewardSettings::default());
        assert_eq!(returns, [3.0, 3.0]);
    }
}

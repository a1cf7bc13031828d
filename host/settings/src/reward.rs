//! Section `reward`: weights of the return.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// Weights of the return; the defaults are the paper's.
#[derive(Debug, Clone, Copy, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RewardSettings {
    /// λ_j, weight of the answer judge.
    #[default = 1.0]
    #[schemars(range(min = -1e6, max = 1e6))]
    pub lambda_judge: f64,
    /// λ_f, weight of the format check.
    #[default = 1.0]
    #[schemars(range(min = -1e6, max = 1e6))]
    pub lambda_format: f64,
    /// λ_c, weight of the sentence rewards.
    #[default = 1.0]
    #[schemars(range(min = -1e6, max = 1e6))]
    pub lambda_corver: f64,
    /// Reward of an answer “I don't know” by the built-in judge, before the weight: 0 in TruthRL.
    /// Without it, that of a wrong answer (−1), as in the paper.
    #[schemars(range(min = -1e6, max = 1e6))]
    pub refusal: Option<f64>,
    /// Alignment rate below which a completion's sentence rewards are dropped.
    #[default = 0.5]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_alignment: f64,
    /// Unit that the sentence rewards are spread over.
    pub granularity: Granularity,
    /// Mean over the sentence rewards, with `granularity = "response"`.
    pub sentence_mean: SentenceMean,
    /// Authority if the paper and its published code differ.
    pub compatibility: Compatibility,
    /// Splitter of completions into sentences.
    pub sentences: SentenceSplitter,
    /// Language of questions, completions and corpus. It decides where sentences end, and which words
    /// are articles, pronouns and refusals. Other languages than English need `sentences = "prose"`.
    pub language: Language,
}

/// Settings that decide how a text is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TextSettings {
    /// Authority if the paper and its published code differ.
    pub compatibility: Compatibility,
    /// Splitter of texts into sentences.
    pub sentences: SentenceSplitter,
    /// Language of the text.
    pub language: Language,
}

impl RewardSettings {
    /// Returns the settings that decide how a completion is read.
    #[must_use]
    pub fn text(&self) -> TextSettings {
        let Self { compatibility, sentences, language, .. } = *self;
        TextSettings { compatibility, sentences, language }
    }

    /// True if a sentence reward can reach a token. If not, nothing need be extracted or counted.
    #[must_use]
    pub fn sentence_rewards_enabled(&self) -> bool {
        self.lambda_corver != 0.0
    }
}

/// Unit that the sentence rewards are spread over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Granularity {
    /// A token gets the reward of its sentence.
    #[default]
    Token,
    /// A3: every token gets the same mean of the sentence rewards, `reward.sentence_mean`.
    Response,
}

/// Mean that A3 takes over the sentence rewards of a completion. The paper's three descriptions of
/// A3 contradict each other, so each of its readings is here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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

/// Splitter of a text into sentences.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SentenceSplitter {
    /// The paper's: at white space after `.`, `!` or `?`.
    #[default]
    Paper,
    /// For real text: also at lines, list items and the terminators of other scripts, but not in
    /// abbreviations.
    Prose,
}

/// Language of texts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Language {
    /// The paper's.
    #[default]
    #[serde(rename = "en")]
    English,
    /// German.
    #[serde(rename = "de")]
    German,
    /// Spanish.
    #[serde(rename = "es")]
    Spanish,
    /// French.
    #[serde(rename = "fr")]
    French,
    /// Chinese. Simplified and traditional characters are not converted.
    #[serde(rename = "zh")]
    Chinese,
}

/// Authority if the paper and the authors' published code differ.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Compatibility {
    /// The method as the paper describes it.
    #[default]
    Paper,
    /// The published code, its faults included.
    Reference,
}

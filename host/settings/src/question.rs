//! Section `question`: the questions of training and of evaluation.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// Questions to train on and to evaluate with.
///
/// A question set is a file (`.json`, `.jsonl`, `.parquet`), the folder of a dataset,
/// `FOLDER#SPLIT`, the name of a dataset that was downloaded, or `demo`.
#[derive(Debug, Clone, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct QuestionSection {
    /// Question set to train on. Or the phases of a curriculum: for each phase a list of question
    /// sets with the number of questions that it takes, such as `[[{ file = "easy.jsonl", take =
    /// 3000 }], [{ file = "hard.jsonl", take = 500 }]]`. Every phase has an equal part of the
    /// steps; no question is taken twice.
    pub train: Option<TrainQuestions>,
    /// Question set to evaluate with before and after training. Not set: no evaluation.
    #[schemars(length(min = 1))]
    pub eval: Option<String>,
    /// Number of evaluation questions, the first ones of the set. Not set: all.
    #[schemars(range(min = 1, max = 9_000_000_000_000_000_u64))]
    pub eval_limit: Option<usize>,
    /// Questions of one step.
    #[default = 24]
    #[schemars(range(min = 1, max = 100_000))]
    pub prompts_per_step: usize,
}

/// Questions of a training run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected a question set, or a list of phases: \
                 [[{ file = \"FILE\", take = N }, …], …]"
)]
pub enum TrainQuestions {
    /// One question set for the whole run.
    Set(#[schemars(length(min = 1))] String),
    /// Phases of a curriculum.
    Phases(Vec<Vec<PhaseShare>>),
}

/// Part of a phase: a number of questions of one question set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PhaseShare {
    /// Question set that they are from.
    pub file: String,
    /// Number of questions to take.
    pub take: usize,
}

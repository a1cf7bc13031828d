//! Every setting, declared once: name, meaning, unit, default and bounds are in one block, in the file
//! of its section.
//!
//! ```text
//! run question policy rollout engine extract corpus backends rule reward advantage update sft checkpoint filter eval check
//!                                   the sections
//! schema     declarations as data: names, bounds, meanings
//! load       demo < files < --set < an arm's file, merged into Settings
//! reference  docs/configuration.md
//! ```
//!
//! The defaults are the paper's, except `corpus.mode`. [`check`] compares values with the declared
//! bounds, and returns all problems.

mod advantage;
mod backends;
mod check;
mod checkpoint;
mod corpus;
mod engine;
mod eval;
mod extract;
mod filter;
pub mod load;
mod plugin;
mod policy;
mod question;
pub mod reference;
mod reward;
mod rollout;
mod rule;
mod run;
pub mod schema;
mod sft;
mod text;
mod update;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use advantage::{AdvantageSettings, ScaleRewards};
pub use backends::{
    BackendsSection, ChatPrices, ChatSettings, DemoSection, LengthField, NliSettings,
    PassageSettings, PriceSection,
};
pub use check::{CheckSettings, DecidedBy};
pub use checkpoint::CheckpointSection;
pub use corpus::{CorpusSection, CountMode, PackMisses, RemoteSettings};
pub use engine::{AdapterPrecision, EngineKind, EngineSection};
pub use eval::{EvalSection, EvaluateSettings};
pub use extract::{ExtractKind, ExtractSection, ReplyGrammar};
pub use filter::FilterSettings;
pub use load::{DEMO, Layers};
pub use plugin::{PluginRef, WeightedPlugin};
pub use policy::{PolicySection, Precision};
pub use question::{PhaseShare, QuestionSection, TrainQuestions};
pub use reward::{
    Compatibility, Granularity, Language, RewardSettings, SentenceMean, SentenceSplitter,
    TextSettings,
};
pub use rollout::{LongPrompts, MAX_TEMPERATURE, MIN_TOP_P, Sampling, is_temperature, is_top_p};
pub use rule::{GraderSection, Limits, RuleSection, limits};
pub use run::{Device, RunSection, UnknownDevice};
pub use schema::{InvalidSetting, check};
pub use sft::SftSettings;
pub use update::{
    AdamWSettings, Algorithm, DpoSettings, ImportanceLevel, LearnSettings, LoraSettings,
    LossSettings, LossType, MomentPrecision, OldLogProbs, PpoSettings,
};

/// All settings, by section.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Length, seed and device of a run.
    pub run: RunSection,
    /// Questions to train on and to evaluate with. A question set is a file (`.json`, `.jsonl`,
    /// `.parquet`), the folder of a dataset, `FOLDER#SPLIT`, the name of a dataset that was
    /// downloaded, or `demo`.
    pub question: QuestionSection,
    /// Model, tokenizer and prompt of the policy.
    pub policy: PolicySection,
    /// Sampling of the completions of a step.
    pub rollout: Sampling,
    /// Inference server that samples completions in place of the policy ([integrations.md](integrations.md)).
    pub engine: EngineSection,
    /// Model, prompt and bounds of the triplet extractor.
    pub extract: ExtractSection,
    /// Index and counting of co-occurrences.
    pub corpus: CorpusSection,
    /// Capabilities of rules in addition to counts ([backends.md](backends.md)). Each is granted
    /// by naming its model or index.
    pub backends: BackendsSection,
    /// Rules that reward sentences.
    pub rule: RuleSection,
    /// Rule that judges answers.
    pub judge: GraderSection,
    /// Rule that checks the format.
    pub format: GraderSection,
    /// Weights of the return.
    pub reward: RewardSettings,
    /// Normalisation of GRPO's advantages.
    pub advantage: AdvantageSettings,
    /// Algorithm, loss, adapter and optimiser of the policy update.
    pub update: LearnSettings,
    /// Fine-tuning on demonstrations. Adapters, optimiser and warm-up are those of `update`.
    pub sft: SftSettings,
    /// Checkpoints of a run.
    pub checkpoint: CheckpointSection,
    /// Samples and thresholds of the self-filter.
    pub filter: FilterSettings,
    /// Prompts and sampling of evaluation.
    pub eval: EvalSection,
    /// Counts below which `check` reports something as unsupported.
    pub check: CheckSettings,
}

//! What a run is told: defaults < `--config` files < `--set` < flags, as they are written. Sections are named after the
//! stages; the defaults are the paper's. [`crate::config`] says what they mean.

mod bounds;
mod keys;
mod load;
mod verify;

use std::path::PathBuf;

use corver_core::{AdvantageSettings, LearnSettings, Precision, RewardSettings, Sampling};
use corver_counts::RemoteSettings;
use corver_study::eval::{EvaluateSettings, FilterSettings};
use corver_study::sft::SftSettings;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::check::CheckSettings;

pub use bounds::out_of_bounds;
pub use keys::differences;
pub use verify::{DemoSection, PriceSection, VerifySection};

/// Stands for the built-in demo, in place of a path.
pub const DEMO: &str = "demo";

/// All settings, by section.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The run as a whole.
    pub run: RunSection,
    /// What is asked.
    pub question: QuestionSection,
    /// The model that is trained.
    pub policy: PolicySection,
    /// How completions are drawn.
    pub rollout: Sampling,
    /// What draws completions in place of the policy itself.
    pub engine: EngineSection,
    /// The triplet model.
    pub extract: ExtractSection,
    /// Where counts come from.
    pub corpus: CorpusSection,
    /// What rules may ask beside counts.
    pub verify: VerifySection,
    /// What pays sentences.
    pub rule: RuleSection,
    /// What judges answers.
    pub judge: GraderSection,
    /// What checks the format.
    pub format: GraderSection,
    /// Weights and switches of the reward.
    pub reward: RewardSettings,
    /// How returns become advantages.
    pub advantage: AdvantageSettings,
    /// How the policy learns.
    pub update: LearnSettings,
    /// How `sft` imitates demonstrations.
    pub sft: SftSettings,
    /// When checkpoints are written.
    pub checkpoint: CheckpointSection,
    /// Which questions `filter` keeps.
    pub filter: FilterSettings,
    /// How the policy is evaluated.
    pub eval: EvalSection,
    /// What `check` calls unsupported.
    pub check: CheckSettings,
}

/// The run as a whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunSection {
    /// Seed of every random draw.
    pub seed: u64,
    /// Optimiser steps.
    pub steps: usize,
    /// Where the policy runs: auto, cpu or cuda:N.
    pub device: String,
    /// CPU threads that libtorch uses within one operation; 0: as many as are fastest when the run begins, which is measured.
    pub threads: usize,
    /// GiB of the device's memory that the policy may take; 0 stands for what is free when the run begins.
    pub memory_gib: f64,
}

impl Default for RunSection {
    fn default() -> Self {
        Self { seed: 42, steps: 100, device: "auto".into(), threads: 0, memory_gib: 0.0 }
    }
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QuestionSection {
    /// Questions to train on: a file, a dataset's folder, `FOLDER#SPLIT`, the name of a dataset that was downloaded, or "demo".
    pub train: String,
    /// Phases of a curriculum, in place of `train`: each a list of files with how many of their questions it takes, such as
    /// `[{ file = "easy.jsonl", take = 3000 }]`. Every phase has an equal part of the steps; no question is taken twice.
    pub phases: Vec<Vec<ShareSection>>,
    /// Questions to evaluate on before and after, named likewise; empty evaluates nothing.
    pub eval: String,
    /// Only the first N evaluation questions; 0 takes all.
    pub eval_limit: usize,
    /// Questions of a step.
    pub prompts_per_step: usize,
}

impl Default for QuestionSection {
    fn default() -> Self {
        Self { train: String::new(), phases: Vec::new(), eval: String::new(), eval_limit: 0, prompts_per_step: 24 }
    }
}

/// What a phase takes from a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShareSection {
    /// As `question.train` names them.
    pub file: String,
    /// Questions.
    pub take: usize,
}

/// The model that is trained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicySection {
    /// Hugging Face folder, the name of a model that was downloaded (`Qwen/Qwen3-8B`), or "demo".
    pub model: String,
    /// Folder of an adapter or a checkpoint that training goes on from, and that it is compared with; empty begins with a fresh one.
    pub adapter: String,
    /// Switches of the model's chat template, by their names: `{ enable_thinking = false }`.
    pub chat: Map<String, Value>,
    /// Texts that end an answer, beside the model's stop tokens. The text stays in the answer.
    pub stop: Vec<String>,
    /// System prompt of training rollouts; empty sends none.
    pub system_prompt: String,
    /// auto (bf16 on a GPU, f32 on the CPU), f32 or bf16.
    pub precision: Precision,
    /// Completions decoded at once, at most; a run lowers it to what fits its device.
    pub max_rows: usize,
}

impl Default for PolicySection {
    fn default() -> Self {
        Self {
            model: String::new(),
            adapter: String::new(),
            chat: Map::new(),
            stop: Vec::new(),
            system_prompt: String::new(),
            precision: Precision::default(),
            max_rows: 512,
        }
    }
}

/// What draws completions in place of the policy itself: an inference server (docs/engines.md).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineSection {
    /// vllm or sglang; empty: the policy draws them itself, and nothing else here matters.
    pub kind: EngineKind,
    /// The server's root, such as `http://localhost:8000`.
    pub url: String,
    /// The policy's model, by the server's name for it (`--served-model-name`).
    pub model: String,
    /// Folder where the policy's adapters are written for the server, of this run alone; empty: `adapters` in the run's folder.
    pub adapters: String,
    /// The path under which the server finds that folder; empty: the same one.
    pub adapters_as_seen_by_server: String,
    /// Of the adapters: f32 or bf16; auto is f32. Checkpoints are in f32 always.
    pub adapter_precision: Precision,
    /// A file with the key that the server asks for (`--api-key`).
    pub token_file: Option<PathBuf>,
    /// Requests under way at the same time; each draws all completions of a question.
    pub concurrency: usize,
    /// Seconds that one attempt may take: all completions of a question.
    pub timeout_s: f64,
    /// Seconds that a request is tried again and again, before the error that stops the run.
    pub patience_s: f64,
}

impl Default for EngineSection {
    fn default() -> Self {
        Self {
            kind: EngineKind::None,
            url: String::new(),
            model: String::new(),
            adapters: String::new(),
            adapters_as_seen_by_server: String::new(),
            adapter_precision: Precision::Auto,
            token_file: None,
            concurrency: 64,
            timeout_s: 600.0,
            patience_s: 120.0,
        }
    }
}

/// Whose API an engine speaks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    /// There is no engine.
    #[default]
    #[serde(rename = "")]
    None,
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
}

/// The triplet model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExtractSection {
    /// Hugging Face folder, the name of a model that was downloaded, a folder with an exported graph, or "demo".
    pub model: String,
    /// Text file: what the model is asked, with {sentence} where the sentence goes. Empty takes the folder's own.
    pub prompt: String,
    /// The prompt is a user's message and goes through the model's chat template, where it has one.
    pub chat: bool,
    /// The tokens that end a reply, as the tokenizer spells them; none takes the model's own.
    pub stop: Vec<String>,
    /// Longest reply in tokens; 0 takes the folder's own, or 256.
    pub max_new_tokens: usize,
    /// Sentences decoded together, at most; 0 takes the folder's own, or 32.
    pub batch_size: usize,
    /// Longest sentence in tokens, a longer one has no triplets; 0 takes the folder's own, or 512.
    pub max_sentence_tokens: usize,
    /// auto (a GPU where ONNX Runtime can use one), cpu, cuda or cuda:N.
    pub device: String,
}

impl Default for ExtractSection {
    fn default() -> Self {
        Self {
            model: String::new(),
            prompt: String::new(),
            chat: true,
            stop: Vec::new(),
            max_new_tokens: 0,
            batch_size: 0,
            max_sentence_tokens: 0,
            device: "auto".into(),
        }
    }
}

/// Where counts come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CorpusSection {
    /// Index folder, "demo", `URL#NAME` of an index on a server, or a list of those, such as the shards of one index on several
    /// servers: all are asked at the same time, and their counts are added.
    pub index: OneOrMany,
    /// `compatible` equals the official engine, sub-sampling included; `exact` counts every match of the same rule; `span`
    /// counts the stretches of `max_diff_tokens` tokens that hold all words.
    pub mode: corver_corpus::Mode,
    /// Clauses with more hits than this are sub-sampled in `compatible` mode.
    pub max_clause_freq: u64,
    /// Window in tokens. Not set: the paper's, or the demo's where the index is the demo's.
    pub max_diff_tokens: Option<u64>,
    /// Memory for the sorted positions of frequent words, per index folder, in MiB, so that they are sorted once.
    pub cache_mib: u64,
    /// Milliseconds for the look-ups of one round in an index folder. A rule asks what it likes; this bounds what it costs.
    pub count_ms: u64,
    /// How to treat servers.
    pub remote: RemoteSettings,
}

impl Default for CorpusSection {
    fn default() -> Self {
        Self {
            index: OneOrMany::default(),
            mode: corver_corpus::Mode::Compatible,
            max_clause_freq: 500_000,
            max_diff_tokens: None,
            cache_mib: corver_corpus::OpenOptions::default().cache_bytes >> 20,
            count_ms: 120_000,
            remote: RemoteSettings::default(),
        }
    }
}

/// What pays sentences.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RuleSection {
    /// The reward rule, a WebAssembly file; or a list of them, whose rewards are added with their weights:
    /// `FILE.wasm:WEIGHT`.
    pub plugin: OneOrMany,
    /// Handed to the rule as it is; `corver-host plugin check` prints what a rule takes. With several rules: a table for
    /// each, under its name.
    pub settings: Map<String, Value>,
    /// What each rule may use and answer, `judge` and `format` included.
    pub limits: corver_rules::Limits,
}

impl Default for RuleSection {
    fn default() -> Self {
        let first = OneOrMany::One("first.wasm".into());
        Self { plugin: first, settings: Map::new(), limits: corver_rules::Limits::default() }
    }
}

/// A response-level reward.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GraderSection {
    /// A response rule, a WebAssembly file; empty stands for the paper's, which is built in.
    pub plugin: String,
    /// Handed to the rule as it is.
    pub settings: Map<String, Value>,
}

/// When checkpoints are written.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointSection {
    /// Steps between checkpoints.
    pub every: usize,
    /// Newest checkpoints kept.
    pub keep: usize,
}

impl Default for CheckpointSection {
    fn default() -> Self {
        Self { every: 50, keep: 4 }
    }
}

/// How the policy is evaluated.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EvalSection {
    /// System prompt of evaluation; empty sends none.
    pub system_prompt: String,
    /// Added to it when the trained policy answers (the paper's anti-loop line).
    pub trained_suffix: String,
    /// How answers are drawn and graded.
    pub answers: EvaluateSettings,
}

/// A text or a list of texts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
pub enum OneOrMany {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

impl OneOrMany {
    /// All that are not empty.
    pub fn texts(&self) -> impl Iterator<Item = &String> {
        let texts = match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::Many(texts) => texts,
        };
        texts.iter().filter(|text| !text.is_empty())
    }
}

impl From<Vec<String>> for OneOrMany {
    fn from(mut texts: Vec<String>) -> Self {
        if texts.len() == 1 { Self::One(texts.remove(0)) } else { Self::Many(texts) }
    }
}

impl Default for OneOrMany {
    fn default() -> Self {
        Self::One(String::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_the_papers() {
        let settings = Settings::default();
        assert_eq!((settings.run.steps, settings.run.seed, settings.question.prompts_per_step), (100, 42, 24));
        assert_eq!((settings.rollout.num_generations, settings.rollout.max_completion_length), (16, 1024));
        assert_eq!((settings.corpus.max_clause_freq, settings.update.learning_rate), (500_000, 1e-5));
    }
}

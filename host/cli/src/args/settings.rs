//! Settings on the command line: files, single settings, and flags that set common ones.

use std::path::PathBuf;

use clap::Args;
use corver_settings::Layers;

/// Settings files and single settings; later ones override earlier ones. docs/configuration.md
/// lists every setting.
#[derive(Debug, Clone, Default, Args)]
pub struct SettingsArgs {
    /// TOML file of settings, or `demo` for the built-in one. Repeatable; later files override
    /// earlier ones, and all override `demo`. Default: `demo`, if the command names no model,
    /// corpus, questions or other part of your own.
    #[arg(long, value_name = "FILE")]
    pub config: Vec<PathBuf>,
    /// Single setting, as section.key=value. Repeatable.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

/// Flags that set settings.
pub trait Flags {
    /// Writes the given flags into the settings.
    fn apply(&self, layers: &mut Layers);
}

/// The policy and its device.
#[derive(Debug, Clone, Default, Args)]
pub struct PolicyArgs {
    /// Policy: a Hugging Face folder, or the name of a downloaded model (`policy.model`).
    #[arg(long, value_name = "DIR|NAME")]
    pub model: Option<String>,
    /// Device of the policy: auto, cpu, cuda or cuda:N (`run.device`; the extractor's is
    /// `extract.device`).
    #[arg(long)]
    pub device: Option<String>,
}

impl Flags for PolicyArgs {
    fn apply(&self, layers: &mut Layers) {
        set(layers, "policy.model", &self.model);
        set(layers, "run.device", &self.device);
    }
}

/// Extractor and corpus of the sentence rules.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct PartArgs {
    /// Triplet extractor: a Hugging Face folder, or the name of a downloaded model
    /// (`extract.model`).
    #[arg(long, value_name = "DIR|NAME")]
    pub extractor: Option<String>,
    #[command(flatten)]
    pub corpus: CorpusArgs,
}

impl Flags for PartArgs {
    fn apply(&self, layers: &mut Layers) {
        set(layers, "extract.model", &self.extractor);
        self.corpus.apply(layers);
    }
}

/// Indexes of the corpus.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct CorpusArgs {
    /// Corpus: an index folder, or URL#NAME of an index on a server. Repeatable; counts are summed
    /// (`corpus.index`).
    #[arg(long, value_name = "DIR|NAME|URL#NAME")]
    pub index: Vec<String>,
}

impl Flags for CorpusArgs {
    fn apply(&self, layers: &mut Layers) {
        set_list(layers, "corpus.index", &self.index);
    }
}

/// Rules that reward sentences, with their extractor and corpus.
#[derive(Debug, Clone, Default, Args)]
pub struct RewardArgs {
    /// Reward rule: a path, a name in plugins/dist, or a URL with a hash (https://…@blake3:HEX).
    /// Repeatable; rewards are summed with their weights: a.wasm:0.7, b.wasm:0.3; a weight of 0
    /// records them only (`rule.plugin`).
    #[arg(long, value_name = "FILE.wasm[@blake3:HEX][:WEIGHT]")]
    pub plugin: Vec<String>,
    #[command(flatten)]
    pub parts: PartArgs,
}

impl Flags for RewardArgs {
    fn apply(&self, layers: &mut Layers) {
        set_list(layers, "rule.plugin", &self.plugin);
        self.parts.apply(layers);
    }
}

/// Response rules in place of the built-in ones.
#[derive(Debug, Clone, Default, Args)]
pub struct GraderArgs {
    /// Response rule used as answer judge instead of the built-in string match (`judge.plugin`).
    #[arg(long, value_name = "FILE.wasm")]
    pub judge: Option<String>,
    /// Response rule used as format check instead of the built-in check of think and answer blocks
    /// (`format.plugin`).
    #[arg(long, value_name = "FILE.wasm")]
    pub format: Option<String>,
}

impl Flags for GraderArgs {
    fn apply(&self, layers: &mut Layers) {
        set(layers, "judge.plugin", &self.judge);
        set(layers, "format.plugin", &self.format);
    }
}

/// Questions of a training run.
#[derive(Debug, Clone, Default, Args)]
pub struct QuestionArgs {
    /// Questions: a file, a dataset folder, or a split of it, FOLDER#train (`question.train`).
    #[arg(long, value_name = "FILE")]
    pub questions: Option<String>,
}

impl Flags for QuestionArgs {
    fn apply(&self, layers: &mut Layers) {
        set(layers, "question.train", &self.questions);
    }
}

/// Length and seed of a run.
#[derive(Debug, Clone, Default, Args)]
pub struct LengthArgs {
    /// Number of training steps (`run.steps`).
    #[arg(long)]
    pub steps: Option<usize>,
    /// Random seed (`run.seed`).
    #[arg(long)]
    pub seed: Option<u64>,
}

impl Flags for LengthArgs {
    fn apply(&self, layers: &mut Layers) {
        if let Some(steps) = self.steps {
            layers.set("run.steps", steps);
        }
        if let Some(seed) = self.seed {
            layers.set("run.seed", seed);
        }
    }
}

fn set(layers: &mut Layers, key: &str, value: &Option<String>) {
    if let Some(value) = value {
        layers.set(key, value.as_str());
    }
}

fn set_list(layers: &mut Layers, key: &str, values: &[String]) {
    if !values.is_empty() {
        layers.set(key, values.to_vec());
    }
}

//! Arguments of the commands that train a policy, or prepare or use what is trained: `train`, `sft`,
//! `filter`, `compare` and `merge`.

use std::path::PathBuf;

use clap::Args;

#[cfg(feature = "torch")]
use super::Flags;
use super::{
    GraderArgs, LengthArgs, PartArgs, PolicyArgs, QuestionArgs, RecordingArgs, RewardArgs,
    SettingsArgs,
};

#[derive(Debug, Clone, Default, Args)]
pub struct TrainArgs {
    #[command(flatten)]
    pub settings: SettingsArgs,
    #[command(flatten)]
    pub policy: PolicyArgs,
    #[command(flatten)]
    pub questions: QuestionArgs,
    #[command(flatten)]
    pub reward: RewardArgs,
    #[command(flatten)]
    pub graders: GraderArgs,
    #[command(flatten)]
    pub length: LengthArgs,
    /// Folder of the run. Default: the next free runs/RULE-NNN.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Resume the run in --out from its latest checkpoint, with its saved settings. With --record,
    /// append to the existing recording.
    #[arg(long, requires = "out")]
    pub resume: bool,
    #[command(flatten)]
    pub recording: RecordingArgs,
    /// Check and print the resolved configuration, then exit.
    #[arg(long)]
    pub dry_run: bool,
}

#[cfg(feature = "torch")]
impl TrainArgs {
    /// Returns the flags that set settings.
    pub fn flags(&self) -> [&dyn Flags; 5] {
        [&self.policy, &self.questions, &self.reward, &self.graders, &self.length]
    }
}

#[derive(Debug, Clone, Args)]
pub struct SftArgs {
    #[command(flatten)]
    pub settings: SettingsArgs,
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// Demonstrations, one JSON object per line.
    pub file: PathBuf,
    /// Folder of the run. Default: the next free runs/sft-NNN.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Resume the run in --out from its latest checkpoint, with its saved settings.
    #[arg(long, requires = "out")]
    pub resume: bool,
}

#[derive(Debug, Clone, Args)]
pub struct FilterArgs {
    #[command(flatten)]
    pub settings: SettingsArgs,
    #[command(flatten)]
    pub policy: PolicyArgs,
    #[command(flatten)]
    pub questions: QuestionArgs,
    /// Also select N questions that were always answered correctly.
    #[arg(long, value_name = "N")]
    pub anchors: Option<usize>,
    /// Output folder. Default: the next free runs/filter-NNN.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Resume in --out, with its saved settings. The selection criteria may change.
    #[arg(long, requires = "out")]
    pub resume: bool,
}

#[derive(Debug, Args)]
pub struct CompareArgs {
    #[command(flatten)]
    pub settings: SettingsArgs,
    #[command(flatten)]
    pub policy: PolicyArgs,
    #[command(flatten)]
    pub questions: QuestionArgs,
    #[command(flatten)]
    pub parts: PartArgs,
    #[command(flatten)]
    pub length: LengthArgs,
    /// Arm with this reward rule: a path, or a name in plugins/dist. Repeatable.
    #[arg(long, value_name = "FILE.wasm[:WEIGHT]")]
    pub plugin: Vec<String>,
    /// Arm with the settings of this TOML file over the common ones. Repeatable.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub arm: Vec<PathBuf>,
    /// Question sets to evaluate every trained policy and the untrained one on, after training.
    /// Repeatable. Default: none, or with --resume the sets before.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub eval: Vec<PathBuf>,
    /// Runs of each arm, with consecutive seeds from `run.seed`. Default: 3, or with --resume the
    /// number before.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub seeds: Option<u64>,
    /// Folder for the runs. Default: the next free runs/compare-NNN.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Resume the comparison in --out, with its arms.
    #[arg(long, requires = "out", conflicts_with_all = [
        "plugin", "arm", "steps", "seed", "device", "config", "set", "model", "extractor", "index",
        "questions",
    ])]
    pub resume: bool,
}

#[derive(Debug, Args)]
pub struct MergeArgs {
    #[command(flatten)]
    pub settings: SettingsArgs,
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// Folder of an adapter or a checkpoint.
    pub adapter: PathBuf,
    /// Folder of the merged model; must not exist.
    pub out: PathBuf,
}

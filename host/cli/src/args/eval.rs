//! Arguments of `corver-host eval`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{PolicyArgs, RecordingArgs, RewardArgs, SettingsArgs};

#[derive(Debug, Default, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct EvalArgs {
    #[command(subcommand)]
    pub command: Option<EvalCommand>,
    #[command(flatten)]
    pub settings: SettingsArgs,
    #[command(flatten)]
    pub policy: PolicyArgs,
    #[command(flatten)]
    pub reward: RewardArgs,
    /// Question file, or a split of a dataset folder. Repeatable. Default: `question.eval`.
    #[arg(long, value_name = "FILE")]
    pub questions: Vec<PathBuf>,
    /// Use only the first N questions of each set (`question.eval_limit`).
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// True if the configured limit is for the questions of a training, and not for these.
    #[arg(skip)]
    pub all_questions: bool,
    /// Draw N answers to each question instead of the greedy one, for pass@k.
    #[arg(long, value_name = "N")]
    pub samples: Option<usize>,
    /// Folder of an adapter or a checkpoint. Repeatable. Default: the raw model.
    #[arg(long, value_name = "DIR")]
    pub adapter: Vec<PathBuf>,
    /// Evaluate the raw model too, before the adapters.
    #[arg(long)]
    pub raw: bool,
    /// Also report the share of sentences that the corpus supports. Needs an index, an extractor
    /// and a rule.
    #[arg(long)]
    pub supported: bool,
    /// New folder for the answers: a JSONL file for each policy and question set.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Resume in --out, with the same command line. Finished question sets are not answered again.
    #[arg(long, requires = "out")]
    pub resume: bool,
    #[command(flatten)]
    pub recording: RecordingArgs,
}

#[derive(Debug, Subcommand)]
pub enum EvalCommand {
    /// Compare two policies' answers to the same questions, with significance tests.
    Diff {
        /// Answers of the first policy: a file of `eval --out`, or answers_before.jsonl of a run.
        first: PathBuf,
        /// Answers of the second policy to the same questions.
        second: PathBuf,
    },
}

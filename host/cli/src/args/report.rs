//! Arguments of `corver-host report` and `corver-host explain`.

use std::path::PathBuf;

use clap::Args;

use super::{GraderArgs, RecordingArgs, RewardArgs, SettingsArgs};

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Folders of runs, finished or not.
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// Output file. Default: report.html in the run's folder; for several runs, in the current one.
    #[arg(long, value_name = "FILE.html")]
    pub out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Folder of a run, or a file of completions in the format of `score`.
    #[arg(value_name = "RUN|FILE.jsonl")]
    pub subject: PathBuf,
    /// Step of the run, from 1. Default: the last.
    #[arg(long, value_name = "N", conflicts_with = "line")]
    pub step: Option<usize>,
    /// Completion of the step, from 0. Default: the best and the worst.
    #[arg(long, value_name = "K", conflicts_with = "line")]
    pub completion: Option<usize>,
    /// Line of the file, from 1.
    #[arg(long, value_name = "N")]
    pub line: Option<usize>,
    /// Output file. Default: explain.html in the folder of the run or file.
    #[arg(long, value_name = "FILE.html")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub settings: SettingsArgs,
    #[command(flatten)]
    pub reward: RewardArgs,
    #[command(flatten)]
    pub graders: GraderArgs,
    #[command(flatten)]
    pub recording: RecordingArgs,
}

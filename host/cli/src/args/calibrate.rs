//! `corver-host calibrate`: what its commands take.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{PolicyArgs, RecordingArgs, RewardArgs, SettingsArgs};

#[derive(Debug, Args)]
pub struct CalibrateArgs {
    #[command(subcommand)]
    pub command: CalibrateCommand,
}

#[derive(Debug, Subcommand)]
pub enum CalibrateCommand {
    /// Draw sentences by how often their entities occur together, into a sheet for a person to
    /// label.
    ///
    /// The sheet is CSV, for any spreadsheet. Fill its column `label` with correct, incorrect or
    /// unclear (or c, i, u).
    ///
    ///   corver-host calibrate draw runs/first-001 --out sheet.csv corver-host calibrate draw
    ///   runs/first-001 --per-bucket 200,100,100,100,200 --out sheet.csv # as the paper did
    #[command(verbatim_doc_comment)]
    Draw(DrawArgs),
    /// Read labelled sheets: P(correct) by count, whether it rises, and the settings of rules that
    /// follow from it.
    ///
    /// Several people may label the same sentences, each in a copy of the sheet: what most of them
    /// say counts.
    Read(ReadArgs),
    /// Say whether a higher reward means a truer sentence, before anyone trains.
    ///
    /// Where the truth is known, as in the demo, the policy answers the evaluation questions as in
    /// training, and every rule judges the same sentences. Elsewhere give sheets that people have
    /// labelled.
    ///
    ///   corver-host calibrate audit --plugin first.wasm --plugin min.wasm
    ///   corver-host calibrate audit --sheet sheet.csv --plugin first.wasm --index wikipedia
    #[command(verbatim_doc_comment)]
    Audit(Box<AuditArgs>),
}

#[derive(Debug, Args)]
pub struct DrawArgs {
    /// Folders of runs, or files of traces or answers whose sentences were judged.
    #[arg(required = true)]
    pub runs: Vec<PathBuf>,
    /// Sentences of each bucket; one number, or one for each.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "100")]
    pub per_bucket: Vec<usize>,
    /// New file for the sheet.
    #[arg(long, value_name = "FILE.csv")]
    pub out: PathBuf,
    #[command(flatten)]
    pub buckets: BucketArgs,
    /// Decides which sentences are drawn.
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
}

/// Ranges of counts.
#[derive(Debug, Args)]
pub struct BucketArgs {
    /// Counts from which on a new bucket begins, ascending; the first bucket begins at 0.
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', default_value = "1,5,10,20")]
    pub buckets: Vec<u64>,
}

#[derive(Debug, Args)]
pub struct ReadArgs {
    /// Sheets, as `calibrate draw` writes them, labelled.
    #[arg(required = true, value_name = "SHEET.csv")]
    pub sheets: Vec<PathBuf>,
    /// Folder for calibration.json and the suggested settings; earlier results there are replaced.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct AuditArgs {
    #[command(flatten)]
    pub settings: SettingsArgs,
    #[command(flatten)]
    pub policy: PolicyArgs,
    #[command(flatten)]
    pub reward: RewardArgs,
    /// Questions whose truth is known. Default: `question.eval`.
    #[arg(long, value_name = "FILE", conflicts_with = "sheet")]
    pub questions: Option<String>,
    /// Take the sentences and their truth from this labelled sheet; repeatable. Each has the one
    /// triplet of its row.
    #[arg(long, value_name = "SHEET.csv")]
    pub sheet: Vec<PathBuf>,
    /// Only the first N questions.
    #[arg(long, value_name = "N", conflicts_with = "sheet")]
    pub limit: Option<usize>,
    /// Answers to each question.
    #[arg(long, value_name = "N", default_value_t = 4, conflicts_with = "sheet", value_parser = clap::value_parser!(u16).range(1..))]
    pub samples: u16,
    /// Folder of an adapter or a checkpoint to load into the model. Default: the raw model.
    #[arg(long, value_name = "DIR", conflicts_with = "sheet")]
    pub adapter: Option<PathBuf>,
    #[command(flatten)]
    pub buckets: BucketArgs,
    /// New folder for audit.json and every sentence with its rewards.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub recording: RecordingArgs,
}

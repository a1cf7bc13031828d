//! Arguments of `corver-host calibrate`.

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
    /// Sample sentences stratified by co-occurrence count, into a sheet to label
    ///
    /// The sheet is CSV, for any spreadsheet. Fill the column `label` with correct, incorrect or
    /// unclear (or c, i, u).
    ///
    /// Examples:
    ///   corver-host calibrate draw runs/first-001 --out sheet.csv
    ///   corver-host calibrate draw runs/first-001 --per-bucket 200,100,100,100,200 \
    ///     --out sheet.csv  # the paper's sample
    #[command(verbatim_doc_comment)]
    Draw(DrawArgs),
    /// Compute P(correct) by count from labelled sheets, and suggest settings of rules
    ///
    /// Several people may label the same sentences, each in a copy of the sheet; the majority
    /// label counts.
    #[command(verbatim_doc_comment)]
    Read(ReadArgs),
    /// Measure how well each rule's rewards separate true from false sentences
    ///
    /// If the truth is known, as in the demo, the policy answers the evaluation questions as in
    /// training, and every rule scores the same sentences. Otherwise give labelled sheets.
    ///
    /// Examples:
    ///   corver-host calibrate audit --plugin first.wasm --plugin min.wasm
    ///   corver-host calibrate audit --sheet sheet.csv --plugin first.wasm --index wikipedia
    #[command(verbatim_doc_comment)]
    Audit(Box<AuditArgs>),
    /// Find thresholds for a corpus without labels
    ///
    /// Facts of the corpus, each counted without the document that states it, are compared with
    /// false twins: the same fact with another tail of the same kind and frequency. The suggested
    /// settings are those of `calibrate read`; there are none if the AUC's interval begins below 0.6.
    ///
    /// Examples:
    ///   corver-host calibrate corpus --index wikipedia --extractor extractor --out thresholds
    ///   corver-host calibrate corpus --index wikipedia --set extract.kind=names --out thresholds
    #[command(verbatim_doc_comment)]
    Corpus(Box<CorpusCalibrationArgs>),
}

#[derive(Debug, Args)]
pub struct DrawArgs {
    /// Folders of runs, or files of traces or answers with scored sentences.
    #[arg(required = true)]
    pub runs: Vec<PathBuf>,
    /// Number of sentences per bucket: one for all, or one for each.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "100")]
    pub per_bucket: Vec<usize>,
    /// File of the sheet; must not exist.
    #[arg(long, value_name = "FILE.csv")]
    pub out: PathBuf,
    #[command(flatten)]
    pub buckets: BucketArgs,
    /// Random seed of the sample.
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
}

/// Buckets of co-occurrence counts.
#[derive(Debug, Args)]
pub struct BucketArgs {
    /// Lower bounds of the buckets after the first, ascending; the first starts at 0.
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', default_value = "1,5,10,20")]
    pub buckets: Vec<u64>,
}

#[derive(Debug, Args)]
pub struct ReadArgs {
    /// Labelled sheets of `calibrate draw`.
    #[arg(required = true, value_name = "SHEET.csv")]
    pub sheets: Vec<PathBuf>,
    /// Folder for calibration.json and the suggested settings. Existing files are replaced.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct CorpusCalibrationArgs {
    #[command(flatten)]
    pub settings: SettingsArgs,
    #[command(flatten)]
    pub reward: RewardArgs,
    /// Number of facts to draw.
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    pub facts: usize,
    /// New folder for calibration.json, the page, the suggested settings, and sheet.csv with all
    /// facts and twins.
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
    /// Questions with known truth. Default: `question.eval`.
    #[arg(long, value_name = "FILE", conflicts_with = "sheet")]
    pub questions: Option<String>,
    /// Take sentences, their truth and one triplet each from this labelled sheet. Repeatable.
    #[arg(long, value_name = "SHEET.csv")]
    pub sheet: Vec<PathBuf>,
    /// Replace the triplet of each sheet row by those of the extractor (`extract.*`).
    #[arg(long, requires = "sheet")]
    pub extract: bool,
    /// Use only the first N questions.
    #[arg(long, value_name = "N", conflicts_with = "sheet")]
    pub limit: Option<usize>,
    /// Number of answers drawn for each question.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4,
        conflicts_with = "sheet",
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    pub samples: u16,
    /// Folder of an adapter or a checkpoint. Default: `policy.adapter`, or else the raw model.
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

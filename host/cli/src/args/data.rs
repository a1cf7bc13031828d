//! Arguments of `corver-host data`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use corver_data::PoolSettings;

use super::{CorpusArgs, SettingsArgs};

#[derive(Debug, Args)]
pub struct DataArgs {
    #[command(subcommand)]
    pub command: DataCommand,
}

#[derive(Debug, Subcommand)]
pub enum DataCommand {
    /// Build a pool of valid, distinct questions whose entities occur in the corpus
    ///
    /// Writes questions.jsonl, for `question.train` and `filter --questions`; dropped.jsonl, with
    /// the reason for every dropped question; and summary.json. Of duplicates, the one in the
    /// earliest file is used.
    ///
    /// Examples:
    ///   corver-host data pool nq_open#train web_questions#train \
    ///     --exclude nq_open#validation popqa.json --out pool
    ///   corver-host data pool nq.jsonl --index wikipedia --out pool
    #[command(verbatim_doc_comment)]
    Pool(PoolArgs),
    /// Attach corpus passages to questions, as evidence for rules such as fspo and forag
    ///
    /// Each question gets the passages with the best BM25 score for its words and its first gold.
    /// A question that has evidence is not changed. `corver-host index passages` makes the
    /// passages.
    ///
    /// Example:
    ///   corver-host data evidence zone/questions.jsonl --index wikipedia \
    ///     --out zone/with-evidence.jsonl
    #[command(verbatim_doc_comment)]
    Evidence(EvidenceArgs),
    /// Write demonstrations for `sft` from questions with golds
    ///
    /// Each line has a question and a completion in the format of the paper:
    /// <think>reasoning</think><answer>gold</answer>. Questions without golds are left out.
    ///
    /// Example:
    ///   corver-host data demonstrations nq_open#train --out demonstrations.jsonl
    #[command(verbatim_doc_comment)]
    Demonstrations(DemonstrationsArgs),
}

#[derive(Debug, Args)]
pub struct DemonstrationsArgs {
    /// Question files, or splits of dataset folders: FOLDER#train.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// File with the completion, where {question} and {answer} are replaced. Default: reasoning
    /// that repeats the question and the gold.
    #[arg(long, value_name = "FILE.txt")]
    pub template: Option<PathBuf>,
    /// Output file, one JSON object per line; must not exist.
    #[arg(long, value_name = "FILE.jsonl")]
    pub out: PathBuf,
}

#[derive(Debug, Args)]
pub struct EvidenceArgs {
    #[command(flatten)]
    pub settings: SettingsArgs,
    #[command(flatten)]
    pub corpus: CorpusArgs,
    /// Question files, or splits of dataset folders: FOLDER#train.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Folder of the passages. Default: next to the index.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Number of passages per question.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=64)
    )]
    pub k: u32,
    /// Output file, one JSON object per line; must not exist.
    #[arg(long, value_name = "FILE.jsonl")]
    pub out: PathBuf,
}

#[derive(Debug, Args)]
pub struct PoolArgs {
    #[command(flatten)]
    pub settings: SettingsArgs,
    #[command(flatten)]
    pub corpus: CorpusArgs,
    /// Question files, or splits of dataset folders: FOLDER#train.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Evaluation sets, whose questions are dropped from the pool. Repeatable.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub exclude: Vec<PathBuf>,
    /// Smallest Jaccard similarity of the word sets of two duplicates; their golds must not
    /// contradict each other.
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = PoolSettings::default().near,
        value_parser = parse_share
    )]
    pub near: f64,
    /// Drop questions with more characters.
    #[arg(long, value_name = "N", default_value_t = PoolSettings::default().max_chars)]
    pub max_chars: usize,
    /// Do not check that the questions' entities occur in the corpus. No index is needed then.
    #[arg(long)]
    pub no_grounding: bool,
    /// Output folder. Default: the next free runs/pool-NNN.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share = text.parse().map_err(|_| "not a number".to_owned())?;
    if share > 0.0 && share <= 1.0 {
        Ok(share)
    } else {
        Err("it must be above 0 and at most 1".to_owned())
    }
}

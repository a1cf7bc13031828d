//! `corver-host data`: what its commands take.

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
    /// Make a pool of question files: sound questions that the corpus speaks of, each once.
    ///
    /// Writes questions.jsonl, which `question.train` and `filter --questions` take; dropped.jsonl,
    /// which says of every other question why it was dropped; and summary.json. Of questions that
    /// are the same, the one of the earlier file is kept.
    ///
    ///   corver-host data pool nq_open#train web_questions#train --not-in nq_open#validation
    ///   popqa.json --out pool corver-host data pool nq.jsonl --index wikipedia --out pool
    #[command(verbatim_doc_comment)]
    Pool(PoolArgs),
    /// Attach passages of the corpus to questions, as evidence for rules that verify against it
    /// (fspo, forag).
    ///
    /// Every question gets the best passages for its words and its first gold, by BM25. One that
    /// brings evidence keeps its own. The passages are those that `corver-host index passages`
    /// made.
    ///
    ///   corver-host data evidence zone/questions.jsonl --index wikipedia --out
    ///   zone/with-evidence.jsonl
    #[command(verbatim_doc_comment)]
    Evidence(EvidenceArgs),
}

#[derive(Debug, Args)]
pub struct EvidenceArgs {
    #[command(flatten)]
    pub settings: SettingsArgs,
    #[command(flatten)]
    pub corpus: CorpusArgs,
    /// Question files, or splits of datasets' folders: FOLDER#train.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Folder that holds the passages. Default: the index's own.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Passages of a question.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub k: u32,
    /// New file of the questions, one JSON object per line.
    #[arg(long, value_name = "FILE.jsonl")]
    pub out: PathBuf,
}

#[derive(Debug, Args)]
pub struct PoolArgs {
    #[command(flatten)]
    pub settings: SettingsArgs,
    #[command(flatten)]
    pub corpus: CorpusArgs,
    /// Question files, or splits of datasets' folders: FOLDER#train.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Evaluation sets: a question that one of them asks is dropped. Repeatable.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub not_in: Vec<PathBuf>,
    /// Questions whose sets of words have at least this Jaccard similarity, and whose golds do not
    /// contradict, are the same.
    #[arg(long, value_name = "SHARE", default_value_t = PoolSettings::default().near, value_parser = share)]
    pub near: f64,
    /// A question with more characters is dropped.
    #[arg(long, value_name = "N", default_value_t = PoolSettings::default().max_chars)]
    pub max_chars: usize,
    /// Do not ask the corpus whether it speaks of the questions: no index is needed.
    #[arg(long)]
    pub no_grounding: bool,
    /// Folder for the pool. Default: the next free runs/pool-NNN.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().map_err(|_| "no number".to_owned())?;
    if share > 0.0 && share <= 1.0 {
        Ok(share)
    } else {
        Err("it must be above 0 and at most 1".to_owned())
    }
}

//! Arguments of `corver-host extract`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{PolicyArgs, SettingsArgs};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ExtractArgs {
    #[command(subcommand)]
    pub command: Option<ExtractCommand>,
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// Hugging Face folder, name of a downloaded model, or folder with an exported graph. Default:
    /// the demo's.
    #[arg(long, value_name = "DIR|NAME")]
    pub extractor: Option<String>,
    /// Prompt template, with {sentence} as placeholder. Default: the extractor folder's.
    #[arg(long, value_name = "FILE")]
    pub prompt: Option<PathBuf>,
    /// Do not apply the model's chat template to the prompt.
    #[arg(long)]
    pub no_chat: bool,
    /// Longest reply in tokens. Default: the extractor folder's, or 256.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_new_tokens: Option<u32>,
    /// Largest number of sentences decoded in one batch. Default: the extractor folder's, or 256 for
    /// a Hugging Face folder on a GPU, or 32.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub batch_size: Option<u32>,
    /// Device: auto, cpu, cuda or cuda:N (`extract.device`).
    #[arg(long)]
    pub device: Option<String>,
    /// Also print the model's replies.
    #[arg(long)]
    pub raw: bool,
    /// Compare with gold triplets, one JSON object per line: {"sentence": …, "triplets": [[head,
    /// relation, tail], …]}.
    #[arg(long, value_name = "GOLD.jsonl", conflicts_with = "file")]
    pub eval: Option<PathBuf>,
    /// Print decoding statistics and throughput at the end.
    #[arg(long)]
    pub stats: bool,
    /// Sentences, one per line. Default: standard input.
    pub file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum ExtractCommand {
    /// Train an extractor on labelled sentences
    ///
    /// A tenth of the sentences is held out. The model learns the others with an adapter, which is
    /// then merged into its weights. Precision and recall are measured on the sentences held out.
    ///
    /// --out has the folder `extractor` for `extract.model`, with the prompt in it. Passes, batch and
    /// learning rate are `sft.epochs`, `sft.per_step` and `sft.learning_rate`.
    ///
    /// Examples:
    ///   corver-host extract train labels.jsonl --model Qwen/Qwen2.5-0.5B-Instruct \
    ///     --prompt prompt.txt --out runs/extractor --set sft.epochs=3
    ///   corver-host extract --extractor runs/extractor/extractor sentences.txt
    #[command(verbatim_doc_comment)]
    Train(ExtractTrainArgs),
}

#[derive(Debug, Clone, Args)]
pub struct ExtractTrainArgs {
    #[command(flatten)]
    pub settings: SettingsArgs,
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// Labelled sentences, one JSON object per line: {"sentence": …, "triplets": [[head, relation,
    /// tail], …]}.
    #[arg(value_name = "LABELS.jsonl")]
    pub file: PathBuf,
    /// Prompt template, with {sentence} as placeholder. It becomes a user message.
    #[arg(long, value_name = "FILE")]
    pub prompt: PathBuf,
    /// Number of sentences to hold out. Default: a tenth.
    #[arg(long, value_name = "N")]
    pub held_out: Option<usize>,
    /// Output folder. Default: the next free runs/extractor-NNN.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Resume in --out from the latest checkpoint, with the saved settings.
    #[arg(long, requires = "out")]
    pub resume: bool,
}

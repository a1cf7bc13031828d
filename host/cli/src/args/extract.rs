//! Arguments of `corver-host extract`.

use std::path::PathBuf;

use clap::Args;

use super::SettingsArgs;

#[derive(Debug, Args)]
pub struct ExtractArgs {
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
    /// Largest number of sentences decoded in one batch. Default: the extractor folder's, or 32.
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

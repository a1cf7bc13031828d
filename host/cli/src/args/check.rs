//! Arguments of `corver-host check`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use corver_settings::DecidedBy;

use super::{RewardArgs, SettingsArgs};

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Text files, each checked as one text, or files of JSON lines, `{"text", "question",
    /// "triplets"}`. Default: standard input.
    #[arg(value_name = "FILE", conflicts_with = "text")]
    pub files: Vec<PathBuf>,
    /// Text to check, instead of a file.
    #[arg(long, allow_hyphen_values = true)]
    pub text: Option<String>,
    /// Question that the text answers; its entities are checked for rarity too.
    #[arg(long)]
    pub question: Option<String>,
    /// Criterion for an unsupported sentence: the two-stage test, a negative reward of the rule, or
    /// either of them.
    #[arg(long, value_enum)]
    pub by: Option<By>,
    /// Corpus passages shown for each claim. Default: 1 if the index is on this machine, else 0.
    #[arg(long, value_name = "N")]
    pub passages: Option<usize>,
    #[command(flatten)]
    pub settings: SettingsArgs,
    #[command(flatten)]
    pub reward: RewardArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum By {
    Test,
    Rule,
    Either,
}

impl From<By> for DecidedBy {
    fn from(by: By) -> Self {
        match by {
            By::Test => Self::Test,
            By::Rule => Self::Rule,
            By::Either => Self::Either,
        }
    }
}

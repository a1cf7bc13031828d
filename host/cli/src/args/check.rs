//! What `corver-host check` takes.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use corver_settings::DecidedBy;

use super::{RewardArgs, SettingsArgs};

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Text files, each checked as one text. Default: standard input.
    #[arg(value_name = "FILE", conflicts_with = "text")]
    pub files: Vec<PathBuf>,
    /// The text itself.
    #[arg(long)]
    pub text: Option<String>,
    /// The question that the text answers: are its entities rare?
    #[arg(long)]
    pub question: Option<String>,
    /// What makes a sentence unsupported: the two-stage test, the rule's reward below 0, or either.
    #[arg(long, value_enum)]
    pub by: Option<By>,
    /// Passages of the corpus shown for each claim. Default: 1 where the index is on this machine.
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

//! What `corver-host check` takes.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use corver_reward::check::DecidedBy;

use super::ConfigArgs;

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
    /// Index folder, or URL#NAME of an index on a server; repeatable, counts are added. Default: the configuration's.
    #[arg(long, value_name = "DIR|URL#NAME")]
    pub index: Vec<String>,
    /// What makes a sentence unsupported: the two-stage test, the rule's reward below 0, or either.
    #[arg(long, value_enum)]
    pub by: Option<By>,
    /// Passages of the corpus shown for each claim. Default: 1 where the index is on this machine.
    #[arg(long, value_name = "N")]
    pub passages: Option<usize>,
    #[command(flatten)]
    pub config: ConfigArgs,
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

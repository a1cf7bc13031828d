//! Arguments of `corver-host serve`.

use clap::Args;
use corver_serve::QueueLimits;

use super::index::parse_bytes;
use super::{GraderArgs, RewardArgs, ServerArgs, SettingsArgs};

#[derive(Debug, Args)]
pub struct ServeArgs {
    #[command(flatten)]
    pub settings: SettingsArgs,
    #[command(flatten)]
    pub reward: RewardArgs,
    #[command(flatten)]
    pub graders: GraderArgs,
    #[command(flatten)]
    pub server: ServerArgs,
    /// Largest number of completions in a batch or in one request.
    #[arg(long, value_name = "N", default_value_t = QueueLimits::default().batch)]
    pub max_batch: usize,
    /// Largest number of completions that are queued or being scored; further requests get 503.
    #[arg(long, value_name = "N", default_value_t = QueueLimits::default().completions)]
    pub queue: usize,
    /// Largest total size of open requests, such as 64M; several of one address have at most three
    /// quarters of it. Beyond it, incomplete requests get 408 and others 503.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "64M")]
    pub queue_bytes: u64,
    /// Return an error to OpenRLHF if a completion cannot be scored. Default: a neutral reward,
    /// with corver/error = 1 in its logs.
    #[arg(long)]
    pub strict: bool,
    /// Name of the index for clients that request counts. Default: the folder's name.
    #[arg(long)]
    pub name: Option<String>,
}

//! `corver-host serve`.

use clap::Args;
use corver_serve::QueueLimits;

use super::index::bytes;
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
    /// Completions scored together, and completions of one request, at most.
    #[arg(long, value_name = "N", default_value_t = QueueLimits::default().batch)]
    pub max_batch: usize,
    /// Completions that are waiting or being scored, at most; beyond that, requests get 503.
    #[arg(long, value_name = "N", default_value_t = QueueLimits::default().completions)]
    pub queue: usize,
    /// Bytes of all requests that are waiting or being answered, as 64M, at most; beyond that,
    /// requests get 503.
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "64M")]
    pub queue_bytes: u64,
    /// What cannot be scored is an error to OpenRLHF too. Else it gets a neutral reward, and
    /// corver/error is 1 in its logs.
    #[arg(long)]
    pub strict: bool,
    /// The index's name for clients that count in it. Default: the folder's name.
    #[arg(long)]
    pub name: Option<String>,
}

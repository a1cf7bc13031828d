//! Arguments of `corver-host mcp`.

use clap::Args;

use super::{RewardArgs, SettingsArgs};

#[derive(Debug, Args)]
pub struct McpArgs {
    #[command(flatten)]
    pub settings: SettingsArgs,
    #[command(flatten)]
    pub reward: RewardArgs,
}

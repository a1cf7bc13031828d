//! Arguments of `corver-host score`, and the recording of what rules request.

use std::path::PathBuf;

use clap::Args;

use super::{GraderArgs, RewardArgs, SettingsArgs};

#[derive(Debug, Args)]
pub struct ScoreArgs {
    #[command(flatten)]
    pub settings: SettingsArgs,
    #[command(flatten)]
    pub reward: RewardArgs,
    #[command(flatten)]
    pub graders: GraderArgs,
    /// Completions, one JSON object per line.
    pub file: PathBuf,
    #[command(flatten)]
    pub recording: RecordingArgs,
}

/// Recording or replay of the requests of rules.
#[derive(Debug, Clone, Default, Args)]
pub struct RecordingArgs {
    /// Record all requests of rules and their replies (counts, NLI, chat, passages) in this new
    /// file.
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    pub record: Option<PathBuf>,
    /// Take all replies from this recording. No index, backend or network is needed.
    #[arg(long, value_name = "FILE")]
    pub replay: Option<PathBuf>,
}

#[cfg(feature = "torch")]
impl RecordingArgs {
    /// Returns the flag as a command line ends with it; empty without one.
    pub fn shown(&self) -> String {
        match (&self.record, &self.replay) {
            (Some(path), _) => format!(" --record {}", path.display()),
            (None, Some(path)) => format!(" --replay {}", path.display()),
            (None, None) => String::new(),
        }
    }
}

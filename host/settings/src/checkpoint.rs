//! Section `checkpoint`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// Checkpoints of a run; the defaults are the paper's.
#[derive(Debug, Clone, Copy, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointSection {
    /// Steps between checkpoints.
    #[default = 50]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub every: usize,
    /// Number of newest checkpoints that are kept.
    #[default = 4]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub keep: usize,
}

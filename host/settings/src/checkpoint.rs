//! Section `checkpoint`: when checkpoints are written and deleted.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// Checkpoints of a run; the defaults are the paper's.
#[derive(Debug, Clone, Copy, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointSection {
    /// Number of steps between checkpoints.
    #[default = 50]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub every: usize,
    /// Number of newest checkpoints that are retained.
    #[default = 4]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub keep: usize,
}

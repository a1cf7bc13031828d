//! Section `advantage`: normalisation of GRPO's advantages.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Normalisation of GRPO's advantages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AdvantageSettings {
    /// Divisor of the centred returns.
    pub scale_rewards: ScaleRewards,
    /// Smallest standard deviation of a group's returns; the advantages of a group below it are 0.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub min_spread: f64,
}

/// Divisor of the centred returns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScaleRewards {
    /// Standard deviation within the group.
    #[default]
    Group,
    /// Standard deviation over the whole batch.
    Batch,
    /// The returns are not divided.
    None,
}

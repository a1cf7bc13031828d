//! The step function from counts to rewards.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A step function from counts to rewards. The default is the paper's: 0 → −0.3, 1–4 → −0.1, 5–19 →
/// 0.0, 20 and more → +0.1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Steps")]
pub struct Tiers {
    thresholds: Vec<u64>,
    rewards: Vec<f64>,
}

/// The JSON form of [`Tiers`].
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Steps {
    /// Counts, ascending, the first 2 or more.
    thresholds: Vec<u64>,
    /// Reward of a count of 0, of counts from 1, and of counts from each threshold.
    rewards: Vec<f64>,
}

impl Default for Steps {
    fn default() -> Self {
        Self { thresholds: vec![5, 20], rewards: vec![-0.3, -0.1, 0.0, 0.1] }
    }
}

impl Default for Tiers {
    fn default() -> Self {
        let Steps { thresholds, rewards } = Steps::default();
        Self { thresholds, rewards }
    }
}

impl TryFrom<Steps> for Tiers {
    type Error = TiersError;

    fn try_from(steps: Steps) -> Result<Self, TiersError> {
        Self::new(steps.thresholds, steps.rewards)
    }
}

impl Tiers {
    /// Returns the function with `rewards[0]` for a count of 0, `rewards[1]` for counts from 1, and
    /// `rewards[i + 2]` for counts from `thresholds[i]`.
    ///
    /// # Errors
    /// Fails if the thresholds do not ascend from 2, if there are not two more rewards than
    /// thresholds, or if a reward is not finite.
    pub fn new(thresholds: Vec<u64>, rewards: Vec<f64>) -> Result<Self, TiersError> {
        let ascending = thresholds.is_sorted_by(|a, b| a < b)
            && thresholds.first().is_none_or(|&first| first >= 2);
        if !ascending {
            return Err(TiersError::Thresholds(thresholds));
        }
        if rewards.len() != thresholds.len() + 2 {
            return Err(TiersError::Rewards {
                thresholds: thresholds.len(),
                rewards: rewards.len(),
            });
        }
        // A verdict carries an f32.
        match rewards.iter().find(|&&reward| !(reward as f32).is_finite()) {
            Some(&reward) => Err(TiersError::NotFinite(reward)),
            None => Ok(Self { thresholds, rewards }),
        }
    }

    /// Returns the reward of a count; 0 for an unknown count.
    #[must_use]
    pub fn reward(&self, count: Option<u64>) -> f64 {
        match count {
            None => 0.0,
            Some(0) => self.rewards[0],
            Some(count) => {
                let reached = self.thresholds.iter().filter(|&&threshold| count >= threshold);
                self.rewards[1 + reached.count()]
            }
        }
    }

    /// Returns the reward of each tier, lowest counts first.
    #[must_use]
    pub fn rewards(&self) -> &[f64] {
        &self.rewards
    }

    /// Returns the lowest count of the highest tier.
    #[must_use]
    pub fn top(&self) -> u64 {
        self.thresholds.last().copied().unwrap_or(1)
    }
}

/// Inconsistent thresholds or rewards.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum TiersError {
    /// The thresholds do not ascend, or the first is below 2.
    Thresholds(Vec<u64>),
    /// The number of rewards does not match the number of thresholds.
    Rewards {
        /// Number of thresholds.
        thresholds: usize,
        /// Number of rewards.
        rewards: usize,
    },
    /// A reward is not finite as a 32-bit float.
    NotFinite(f64),
}

impl fmt::Display for TiersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thresholds(got) => {
                write!(f, "`thresholds` must ascend and start at 2 or above; got {got:?}")
            }
            Self::Rewards { thresholds, rewards } => {
                let expected = thresholds + 2;
                write!(
                    f,
                    "`rewards` must have {expected} entries, two more than `thresholds`; got {rewards}"
                )
            }
            Self::NotFinite(got) => write!(f, "`rewards` must be finite 32-bit numbers; got {got}"),
        }
    }
}

impl std::error::Error for TiersError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tier_rewards_step_at_thresholds() {
        let tiers = Tiers::default();
        let rewards =
            [None, Some(0), Some(1), Some(4), Some(5), Some(19), Some(20), Some(u64::MAX)]
                .map(|n| tiers.reward(n));
        assert_eq!(rewards, [0.0, -0.3, -0.1, -0.1, 0.0, 0.0, 0.1, 0.1]);
        assert_eq!(tiers.top(), 20);
    }

    #[test]
    fn inconsistent_tier_settings_are_rejected() {
        assert_eq!(Tiers::new(vec![20, 5], vec![0.0; 4]), Err(TiersError::Thresholds(vec![20, 5])));
        assert_eq!(Tiers::new(vec![1], vec![0.0; 3]), Err(TiersError::Thresholds(vec![1])));
        assert_eq!(
            Tiers::new(vec![5], vec![0.0; 2]),
            Err(TiersError::Rewards { thresholds: 1, rewards: 2 })
        );
        assert_eq!(Tiers::new(vec![], vec![0.0, 1e300]), Err(TiersError::NotFinite(1e300)));
    }
}

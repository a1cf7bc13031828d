//! The learning-zone self-filter: which questions can teach a policy anything (paper, App. self-filter).

use serde::{Deserialize, Serialize};

/// How well a policy answers a question, by the number of right answers among its samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Zone {
    /// Never right.
    Zero,
    /// Sometimes right: a group has spread, and its advantages say something.
    LearningZone,
    /// Always right; may be mixed in as an anchor.
    Mastered,
}

impl Zone {
    /// The zone of a question that was answered right `num_correct` times out of `num_samples`.
    #[must_use]
    pub fn of(num_correct: usize, num_samples: usize) -> Self {
        match num_correct {
            0 => Zone::Zero,
            n if n >= num_samples => Zone::Mastered,
            _ => Zone::LearningZone,
        }
    }
}

/// Which questions to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FilterSettings {
    /// Smallest number of right answers.
    pub min_correct: usize,
    /// Largest number of right answers; one less than the samples where not given.
    pub max_correct: Option<usize>,
}

impl Default for FilterSettings {
    fn default() -> Self {
        Self { min_correct: 1, max_correct: None }
    }
}

impl FilterSettings {
    /// Whether a question belongs in the training set.
    #[must_use]
    pub fn keeps(&self, num_correct: usize, num_samples: usize) -> bool {
        let max = self.max_correct.unwrap_or(num_samples.saturating_sub(1));
        (self.min_correct..=max).contains(&num_correct)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_learning_zone_lies_between_never_and_always() {
        let settings = FilterSettings::default();
        assert_eq!([0, 1, 15, 16].map(|n| settings.keeps(n, 16)), [false, true, true, false]);
        assert_eq!([0, 1, 16].map(|n| Zone::of(n, 16)), [Zone::Zero, Zone::LearningZone, Zone::Mastered]);
    }
}

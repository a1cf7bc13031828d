//! Preference pairs drawn from the reward, for DPO: of each group the completion with the largest
//! R_k against the one with the smallest. A group whose R_k are all the same has none.

use super::ZERO_SPREAD;

/// Two completions of a group, by their index in the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// Completion with the largest R_k of the group.
    pub chosen: usize,
    /// Completion with the smallest R_k of the group.
    pub rejected: usize,
}

/// Returns one pair per group whose R_k differ; of several that are best or worst, the first.
///
/// # Panics
/// If `num_generations` is 0.
#[must_use]
pub fn pairs(mean_returns: &[f64], num_generations: usize) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for first in (0..mean_returns.len()).step_by(num_generations) {
        let mut pair = Pair { chosen: first, rejected: first };
        for index in first..mean_returns.len().min(first + num_generations) {
            if mean_returns[index] > mean_returns[pair.chosen] + ZERO_SPREAD {
                pair.chosen = index;
            }
            if mean_returns[index] < mean_returns[pair.rejected] - ZERO_SPREAD {
                pair.rejected = index;
            }
        }
        if pair.chosen != pair.rejected {
            pairs.push(pair);
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::mean;

    #[test]
    fn pairs_join_best_and_worst_of_each_group() {
        let means = [0.0, 3.0, -1.0, 2.0, 2.0, 2.0, 1.0, 1.0, 0.5];
        let pair = |chosen, rejected| Pair { chosen, rejected };
        assert_eq!(pairs(&means, 3), [pair(1, 2), pair(6, 8)], "the second group has none");
        assert_eq!(pairs(&means[..2], 1), [], "no completion is better than itself");
    }

    #[test]
    fn completions_of_equal_reward_and_other_length_are_no_pair() {
        let mut means = [3, 20, 40, 7].map(|length| mean(&vec![0.7; length]));
        assert!(means[2] < means[3], "rounding: {means:?}");
        assert_eq!(pairs(&means, 4), []);
        means[1] = 0.2;
        assert_eq!(pairs(&means, 4), [Pair { chosen: 0, rejected: 1 }]);
    }
}

//! GRPO (Shao et al. 2024) with a return per token: the paper's.
//!
//! ```text
//! A_t = (R_t − mean_j R_j) / (std_j R_j + 1e-4),   j over the group
//! ```
//!
//! (Paper, Eq. advantage.) The spread is that of the R_k and not of the tokens: where all R_k of a
//! group coincide while tokens differ, advantages reach the thousands.
//! [`AdvantageSettings::min_spread`] can skip such groups; by default none is skipped, as published.

use crate::{AdvantageSettings, ScaleRewards};

use super::Baseline;
use crate::stats::{mean, unbiased_std};

const EPSILON: f64 = 1e-4;

/// Returns the baseline of each group of a step, from the R_k of all of its completions.
///
/// # Panics
/// If `num_generations` is 0.
#[must_use]
pub fn baselines(
    mean_returns: &[f64],
    num_generations: usize,
    settings: &AdvantageSettings,
) -> Vec<Baseline> {
    let batch_std = unbiased_std(mean_returns);
    let mut baselines = Vec::new();
    for group in mean_returns.chunks(num_generations) {
        let group_std = unbiased_std(group);
        let spread = match settings.scale_rewards {
            ScaleRewards::Batch => batch_std,
            ScaleRewards::Group | ScaleRewards::None => group_std,
        };
        let scale = match settings.scale_rewards {
            ScaleRewards::Group | ScaleRewards::Batch => spread + EPSILON,
            ScaleRewards::None => 1.0,
        };
        let is_used = group_std >= settings.min_spread;
        baselines.push(Baseline { centre: mean(group), spread, scale: is_used.then_some(scale) });
    }
    baselines
}

/// Returns `[B][T]` advantages of `returns`, which are `[B][T]` in groups of `num_generations` next to
/// each other.
///
/// # Panics
/// If `num_generations` is 0.
#[must_use]
pub fn normalize(
    returns: &[Vec<f64>],
    num_generations: usize,
    settings: &AdvantageSettings,
) -> Vec<Vec<f64>> {
    let mean_returns: Vec<f64> = returns.iter().map(|row| mean(row)).collect();
    let baselines = baselines(&mean_returns, num_generations, settings);
    let mut advantages = Vec::with_capacity(returns.len());
    for (index, row) in returns.iter().enumerate() {
        advantages.push(baselines[index / num_generations].advantages(row));
    }
    advantages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advantages_subtract_group_mean_and_divide_by_std() {
        let returns = vec![vec![1.0, 3.0], vec![4.0], vec![7.0], vec![7.0, 7.0]];
        let advantages = normalize(&returns, 2, &AdvantageSettings::default());
        // Means 2 and 4: centre 3, standard deviation √2.
        let scale = 2f64.sqrt() + EPSILON;
        assert!((advantages[0][0] + 2.0 / scale).abs() < 1e-12);
        assert!(advantages[0][1].abs() < 1e-12);
        assert!((advantages[1][0] - 1.0 / scale).abs() < 1e-12);
        assert_eq!(advantages[3], [0.0, 0.0]);
    }

    #[test]
    fn min_spread_zeroes_advantages_of_uniform_groups() {
        let returns = vec![vec![1.0, -1.0], vec![0.0, 0.0]];
        let kept = normalize(&returns, 2, &AdvantageSettings::default());
        assert_eq!(kept[0][0], 1.0 / EPSILON);
        let settings = AdvantageSettings { min_spread: 1e-6, ..AdvantageSettings::default() };
        assert_eq!(normalize(&returns, 2, &settings)[0], [0.0, 0.0]);
    }

    #[test]
    fn min_spread_is_the_groups_own_if_the_batch_scales() {
        let settings = AdvantageSettings { scale_rewards: ScaleRewards::Batch, min_spread: 0.5 };
        // The batch's standard deviation is above 0.5.
        let mostly_spread = vec![vec![1.0, -1.0], vec![0.0], vec![5.0], vec![-5.0]];
        let advantages = normalize(&mostly_spread, 2, &settings);
        assert_eq!(advantages[..2], [vec![0.0, 0.0], vec![0.0]]);
        assert!(advantages[2][0] > 0.0 && advantages[3][0] < 0.0, "{advantages:?}");
        // The batch's standard deviation is below 0.5, that of the first group is not.
        let mut mostly_uniform = vec![vec![0.5]; 8];
        mostly_uniform[0] = vec![0.0];
        mostly_uniform[1] = vec![1.0];
        let others = normalize(&mostly_uniform, 2, &settings);
        assert!(others[0][0] < 0.0 && others[1][0] > 0.0, "{others:?}");
    }
}

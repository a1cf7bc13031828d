//! GRPO (Shao et al. 2024) with a return per token: the paper's.
//!
//! ```text
//! A_t = (R_t − mean_j R_j) / (std_j R_j + 1e-4),   j over the group
//! ```
//!
//! (Paper, Eq. advantage.) The spread is that of the R_k and not of the tokens: where all R_k of a
//! group coincide while tokens differ, advantages reach the thousands.
//! [`AdvantageSettings::min_spread`] can skip such groups; by default they are kept, as published.

use crate::{AdvantageSettings, ScaleRewards};

use super::{Advantages, Baseline, mean, means, unbiased_std};

const EPSILON: f64 = 1e-4;

/// The baseline of each group of a step, from the R_k of all of its completions.
///
/// # Panics
/// Where `num_generations` is 0.
#[must_use]
pub fn baselines(
    completion_means: &[f64],
    num_generations: usize,
    settings: &AdvantageSettings,
) -> Vec<Baseline> {
    let batch = unbiased_std(completion_means);
    let baseline = |group: &[f64]| {
        let spread = match settings.scale_rewards {
            ScaleRewards::Batch => batch,
            ScaleRewards::Group | ScaleRewards::None => unbiased_std(group),
        };
        let scale = match settings.scale_rewards {
            ScaleRewards::Group | ScaleRewards::Batch => spread + EPSILON,
            ScaleRewards::None => 1.0,
        };
        Baseline {
            centre: mean(group),
            spread,
            scale: (spread >= settings.min_spread).then_some(scale),
        }
    };
    completion_means.chunks(num_generations).map(baseline).collect()
}

/// Normalises `returns` (`[B][T]`, groups of `num_generations` next to each other).
///
/// # Panics
/// Where `num_generations` is 0.
#[must_use]
pub fn normalize(
    returns: &[Vec<f64>],
    num_generations: usize,
    settings: &AdvantageSettings,
) -> Advantages {
    let completion_means = means(returns);
    let baselines = baselines(&completion_means, num_generations, settings);
    let rows = returns.iter().enumerate().map(|(index, row)| {
        let baseline = &baselines[index / num_generations];
        row.iter().map(|value| baseline.advantage(*value)).collect()
    });
    let spreads: Vec<f64> = baselines.iter().map(|baseline| baseline.spread).collect();
    Advantages::new(rows.collect(), &completion_means, &spreads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_centred_and_scaled_by_the_spread_of_its_means() {
        let returns = vec![vec![1.0, 3.0], vec![4.0], vec![7.0], vec![7.0, 7.0]];
        let advantages = normalize(&returns, 2, &AdvantageSettings::default());
        // Means 2 and 4: centre 3, standard deviation √2.
        let scale = 2f64.sqrt() + EPSILON;
        assert!((advantages.values[0][0] + 2.0 / scale).abs() < 1e-12);
        assert!(advantages.values[0][1].abs() < 1e-12);
        assert!((advantages.values[1][0] - 1.0 / scale).abs() < 1e-12);
        assert_eq!(advantages.values[3], [0.0, 0.0]);
        assert_eq!(advantages.frac_reward_zero_std, 0.5);
        assert_eq!(advantages.reward, 5.0);
    }

    #[test]
    fn groups_without_spread_can_be_skipped() {
        let returns = vec![vec![1.0, -1.0], vec![0.0, 0.0]];
        let kept = normalize(&returns, 2, &AdvantageSettings::default());
        assert_eq!(kept.values[0][0], 1.0 / EPSILON);
        let settings = AdvantageSettings { min_spread: 1e-6, ..AdvantageSettings::default() };
        assert_eq!(normalize(&returns, 2, &settings).values[0], [0.0, 0.0]);
    }
}

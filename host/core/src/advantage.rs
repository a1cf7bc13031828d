//! Stage 8: G returns → advantages.
//!
//! R_k is the mean return of completion k over its tokens; a token's advantage is its return, less the group's mean R_k,
//! over the group's standard deviation of R_k plus 1e-4 (paper, Eq. advantage). The spread is that of the R_k and not
//! of the tokens: where all R_k of a group coincide while tokens differ, advantages reach the thousands.
//! [`AdvantageSettings::min_spread`] can skip such groups; by default they are kept, as published.

use serde::{Deserialize, Serialize};

const EPSILON: f64 = 1e-4;
/// Spreads below this count as zero in the logged share.
const ZERO_SPREAD: f64 = 1e-8;

/// What the centred returns are divided by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScaleRewards {
    /// The spread within the group.
    #[default]
    Group,
    /// The spread over the whole batch.
    Batch,
    /// Nothing.
    None,
}

/// How returns become advantages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdvantageSettings {
    /// What to divide by.
    pub scale_rewards: ScaleRewards,
    /// Groups whose spread is below this get advantage 0; 0 keeps every group.
    pub min_spread: f64,
}

/// Per-token advantages of a step, with what TRL logs of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Advantages {
    /// `[B][T]`, one row per rollout, as long as the rollout.
    pub values: Vec<Vec<f64>>,
    /// Mean R_k over the batch.
    pub reward: f64,
    /// Standard deviation of R_k: the mean over the groups, or the batch's where that is the scale.
    pub reward_std: f64,
    /// Share of groups for which that deviation is zero.
    pub frac_reward_zero_std: f64,
}

/// What the returns of one group are measured against.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Baseline {
    /// Mean R_k of the group.
    pub centre: f64,
    /// Standard deviation of R_k: the group's, or the batch's where that is the scale.
    pub spread: f64,
    /// What centred returns are divided by; `None` where the group is skipped.
    pub scale: Option<f64>,
}

impl Baseline {
    /// The advantage of a token with this return.
    #[must_use]
    pub fn advantage(&self, token_return: f64) -> f64 {
        self.scale.map_or(0.0, |scale| (token_return - self.centre) / scale)
    }
}

/// The baseline of each group of a step, from the R_k of all of its completions.
///
/// # Panics
/// Where `num_generations` is 0.
#[must_use]
pub fn baselines(completion_means: &[f64], num_generations: usize, settings: &AdvantageSettings) -> Vec<Baseline> {
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
        Baseline { centre: mean(group), spread, scale: (spread >= settings.min_spread).then_some(scale) }
    };
    completion_means.chunks(num_generations).map(baseline).collect()
}

/// Normalises `returns` (`[B][T]`, groups of `num_generations` next to each other).
///
/// # Panics
/// Where `num_generations` is 0.
#[must_use]
pub fn normalize(returns: &[Vec<f64>], num_generations: usize, settings: &AdvantageSettings) -> Advantages {
    let completion_means: Vec<f64> = returns.iter().map(|row| mean(row)).collect();
    let baselines = baselines(&completion_means, num_generations, settings);
    let rows = returns.iter().enumerate().map(|(index, row)| {
        let baseline = &baselines[index / num_generations];
        row.iter().map(|value| baseline.advantage(*value)).collect()
    });
    let spreads: Vec<f64> = baselines.iter().map(|baseline| baseline.spread).collect();
    let zero = spreads.iter().filter(|spread| **spread < ZERO_SPREAD).count();
    Advantages {
        values: rows.collect(),
        reward: mean(&completion_means),
        reward_std: mean(&spreads),
        frac_reward_zero_std: if spreads.is_empty() { 0.0 } else { zero as f64 / spreads.len() as f64 },
    }
}

/// Gives the advantages the signs of their labels, after normalisation (FSPO): A becomes −A where it and its token's label, 1 or −1,
/// have opposite signs. A label of 0 changes nothing. Both are `[B][T]`.
pub fn take_signs(advantages: &mut [Vec<f64>], labels: &[Vec<i8>]) {
    for (advantage, label) in advantages.iter_mut().flatten().zip(labels.iter().flatten()) {
        *advantage = signed(*advantage, *label);
    }
}

/// An advantage with the sign of its token's label.
#[must_use]
pub fn signed(advantage: f64, label: i8) -> f64 {
    if f64::from(label) * advantage < 0.0 { -advantage } else { advantage }
}

/// 0 for no values.
fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// The n − 1 estimator; 0 where there are fewer than two values.
fn unbiased_std(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let centre = mean(values);
    let squares: f64 = values.iter().map(|value| (value - centre).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
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
    fn labels_decide_signs_and_not_sizes() {
        let mut advantages = vec![vec![0.5, 0.5, 0.5], vec![-2.0, -2.0, 0.0]];
        take_signs(&mut advantages, &[vec![1, -1, 0], vec![1, 0, -1]]);
        assert_eq!(advantages, [[0.5, -0.5, 0.5], [2.0, -2.0, 0.0]]);
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

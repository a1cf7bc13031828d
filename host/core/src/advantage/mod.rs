//! Stage 8: returns → advantages, one file for each way to do it.
//!
//! ```text
//! grpo        against the group's mean, over its spread (the paper's)
//! reinforce   against the mean of the batch
//! rloo        against the mean of the group's other completions
//! gae         against what a critic expects, for PPO
//! pairs       the best of a group against the worst, for DPO
//! signs       labels that decide the signs of any of them
//! ```
//!
//! R_t is the return of a token, R_k the mean return of completion k over its tokens.

mod gae;
mod grpo;
mod pairs;
mod reinforce;
mod rloo;
mod signs;

use serde::Serialize;

use crate::{AdvantageSettings, PartError};

pub use gae::{GaeSettings, gae, whiten};
pub use grpo::{baselines, normalize};
pub use pairs::{Pair, pairs};
pub use signs::{signed, take_signs};

/// Spreads below this count as zero in the logged share.
const ZERO_SPREAD: f64 = 1e-8;

/// Per-token advantages of a step, with what TRL logs of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Advantages {
    /// `[B][T]`, one row per rollout, as long as the rollout.
    pub values: Vec<Vec<f64>>,
    /// `[B][T]` what a critic should have expected of each token; `None` where there is no critic.
    pub targets: Option<Vec<Vec<f64>>>,
    /// Mean R_k over the batch.
    pub reward: f64,
    /// Standard deviation of R_k: the mean over the groups, or the batch's where that is the scale.
    pub reward_std: f64,
    /// Share of groups for which that deviation is zero.
    pub frac_reward_zero_std: f64,
}

impl Advantages {
    /// `spreads` has the standard deviation of R_k for each group.
    fn new(values: Vec<Vec<f64>>, completion_means: &[f64], spreads: &[f64]) -> Self {
        // A completion alone has no spread to speak of.
        let spreads = if spreads.len() == completion_means.len() { &[] } else { spreads };
        let zero = spreads.iter().filter(|spread| **spread < ZERO_SPREAD).count();
        Self {
            values,
            targets: None,
            reward: mean(completion_means),
            reward_std: mean(spreads),
            frac_reward_zero_std: if spreads.is_empty() {
                0.0
            } else {
                zero as f64 / spreads.len() as f64
            },
        }
    }
}

/// What the returns of a completion are measured against.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Baseline {
    /// What is taken off: GRPO's is the mean R_k of the group.
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

/// How returns become advantages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Estimator {
    /// See [`normalize`].
    Grpo(AdvantageSettings),
    /// R_t less the mean R_k of the batch.
    Reinforce,
    /// R_t less the mean R_j of the group's other completions.
    Rloo,
    /// See [`gae()`]; whitened over the batch.
    Gae(GaeSettings),
    /// 1 for every token of a group's best completion, −1 for those of its worst, 0 elsewhere: see
    /// [`pairs()`].
    Pairs,
}

impl Default for Estimator {
    fn default() -> Self {
        Self::Grpo(AdvantageSettings::default())
    }
}

impl Estimator {
    /// The advantages of `returns` (`[B][T]`, groups of `num_generations` next to each other).
    /// `points` are what of it tokens earned by themselves, or empty; `values` are what a critic
    /// expected of each token.
    ///
    /// # Errors
    /// [`Self::Gae`] without `values`, or with some of another shape. Token rewards (`points`) with a baseline of the group or the batch:
    /// without a reward-to-go such a reward would reach its own token alone, while it raises the
    /// baseline of all others.
    ///
    /// # Panics
    /// Where `num_generations` is 0.
    pub fn advantages(
        &self,
        returns: &[Vec<f64>],
        points: &[Vec<f64>],
        values: Option<&[Vec<f64>]>,
        num_generations: usize,
    ) -> Result<Advantages, PartError> {
        let compares_tokens = matches!(self, Self::Grpo(_) | Self::Reinforce | Self::Rloo);
        if compares_tokens && points.iter().flatten().any(|&reward| reward != 0.0) {
            return Err("the rule rewards single tokens, which only PPO's advantages (GAE) lead back to the tokens before them: set \
                        `update.algorithm = \"ppo\"`"
                .into());
        }
        let completion_means = means(returns);
        let spreads: Vec<f64> =
            completion_means.chunks(num_generations).map(unbiased_std).collect();
        let (advantages, targets) = match self {
            Self::Grpo(settings) => return Ok(normalize(returns, num_generations, settings)),
            Self::Reinforce => {
                (measured(returns, &reinforce::baselines(&completion_means, num_generations)), None)
            }
            Self::Rloo => {
                (measured(returns, &rloo::baselines(&completion_means, num_generations)), None)
            }
            Self::Gae(settings) => {
                let values = values
                    .filter(|values| values.iter().map(Vec::len).eq(returns.iter().map(Vec::len)));
                let values = values
                    .ok_or("the policy has no critic that says what it expects of each token")?;
                gae::of_batch(returns, points, values, settings)
            }
            Self::Pairs => {
                (pairs::signs(returns, &pairs(&completion_means, num_generations)), None)
            }
        };
        Ok(Advantages { targets, ..Advantages::new(advantages, &completion_means, &spreads) })
    }

    /// What each completion is measured against, from the R_k of all of a step; `None` where its
    /// returns alone do not say.
    ///
    /// # Panics
    /// Where `num_generations` is 0.
    #[must_use]
    pub fn baselines(
        &self,
        completion_means: &[f64],
        num_generations: usize,
    ) -> Option<Vec<Baseline>> {
        match self {
            Self::Grpo(settings) => {
                let of_groups = baselines(completion_means, num_generations, settings);
                Some(
                    (0..completion_means.len())
                        .map(|index| of_groups[index / num_generations])
                        .collect(),
                )
            }
            Self::Reinforce => Some(reinforce::baselines(completion_means, num_generations)),
            Self::Rloo => Some(rloo::baselines(completion_means, num_generations)),
            Self::Gae(_) | Self::Pairs => None,
        }
    }

    /// Advantages with the signs of their labels (`[B][T]`): see [`take_signs`].
    ///
    /// # Errors
    /// [`Self::Pairs`] with a label: what is chosen or rejected is a whole completion.
    pub fn with_signs(
        &self,
        mut advantages: Advantages,
        labels: &[Vec<i8>],
    ) -> Result<Advantages, PartError> {
        if *self == Self::Pairs && labels.iter().flatten().any(|&label| label != 0) {
            return Err(
                "the rule labels sentences, and DPO prefers whole completions: choose another `update.algorithm`"
                    .into(),
            );
        }
        take_signs(&mut advantages.values, labels);
        Ok(advantages)
    }

    /// Completions that a group has at least.
    #[must_use]
    pub fn least_generations(&self) -> usize {
        match self {
            Self::Grpo(_) | Self::Rloo | Self::Pairs => 2, // a completion alone has nothing to be compared with
            Self::Reinforce | Self::Gae(_) => 1,
        }
    }
}

/// Every token's return against the baseline of its completion.
fn measured(returns: &[Vec<f64>], baselines: &[Baseline]) -> Vec<Vec<f64>> {
    let row = |(row, baseline): (&Vec<f64>, &Baseline)| {
        row.iter().map(|value| baseline.advantage(*value)).collect()
    };
    returns.iter().zip(baselines).map(row).collect()
}

/// R_k of each completion.
fn means(returns: &[Vec<f64>]) -> Vec<f64> {
    returns.iter().map(|row| mean(row)).collect()
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

    /// Two groups of two; R_k are 2, 4, 7 and 7.
    fn returns() -> Vec<Vec<f64>> {
        vec![vec![1.0, 3.0], vec![4.0], vec![7.0], vec![7.0, 7.0]]
    }

    fn values(estimator: &Estimator) -> Vec<Vec<f64>> {
        estimator.advantages(&returns(), &[], None, 2).unwrap().values
    }

    #[test]
    fn each_algorithm_has_its_baseline() {
        assert_eq!(
            Estimator::default().advantages(&returns(), &[], None, 2).unwrap(),
            normalize(&returns(), 2, &AdvantageSettings::default())
        );
        assert_eq!(
            values(&Estimator::Reinforce),
            [vec![-4.0, -2.0], vec![-1.0], vec![2.0], vec![2.0, 2.0]]
        );
        assert_eq!(
            values(&Estimator::Rloo),
            [vec![-3.0, -1.0], vec![2.0], vec![0.0], vec![0.0, 0.0]]
        );
        assert_eq!(
            values(&Estimator::Pairs),
            [vec![-1.0, -1.0], vec![1.0], vec![0.0], vec![0.0, 0.0]]
        );
    }

    #[test]
    fn token_rewards_need_a_reward_to_go() {
        let of_one_token = [vec![0.0, 0.5], vec![0.0], vec![0.0], vec![0.0, 0.0]];
        for estimator in [Estimator::default(), Estimator::Reinforce, Estimator::Rloo] {
            let refused =
                estimator.advantages(&returns(), &of_one_token, None, 2).unwrap_err().to_string();
            assert!(refused.contains("set `update.algorithm = \"ppo\"`"), "{refused}");
            let none: Vec<Vec<f64>> = of_one_token.iter().map(|row| vec![0.0; row.len()]).collect();
            assert!(
                estimator.advantages(&returns(), &none, None, 2).is_ok(),
                "a rule of sentences has none"
            );
        }
        let critic: Vec<Vec<f64>> = returns().iter().map(|row| vec![0.0; row.len()]).collect();
        let gae = Estimator::Gae(GaeSettings { gamma: 1.0, lambda: 1.0 });
        assert!(gae.advantages(&returns(), &of_one_token, Some(&critic), 2).is_ok());
        // A pair compares whole completions.
        assert!(Estimator::Pairs.advantages(&returns(), &of_one_token, None, 2).is_ok());
    }

    #[test]
    fn all_of_them_log_the_same_spread() {
        for estimator in
            [Estimator::default(), Estimator::Reinforce, Estimator::Rloo, Estimator::Pairs]
        {
            let Advantages { reward, reward_std, frac_reward_zero_std, .. } =
                estimator.advantages(&returns(), &[], None, 2).unwrap();
            assert_eq!((reward, reward_std, frac_reward_zero_std), (5.0, 2f64.sqrt() / 2.0, 0.5));
        }
    }

    #[test]
    fn baselines_are_those_that_the_advantages_are_measured_against() {
        for estimator in [Estimator::default(), Estimator::Reinforce, Estimator::Rloo] {
            let baselines = estimator.baselines(&means(&returns()), 2).unwrap();
            assert_eq!(measured(&returns(), &baselines), values(&estimator));
        }
        assert_eq!(Estimator::Pairs.baselines(&means(&returns()), 2), None);
    }

    #[test]
    fn a_critic_that_says_nothing_is_an_error() {
        let estimator = Estimator::Gae(GaeSettings { gamma: 1.0, lambda: 0.95 });
        let error = estimator.advantages(&returns(), &[], None, 2).unwrap_err();
        assert!(error.to_string().contains("no critic"), "{error}");
        assert!(
            estimator.advantages(&returns(), &[], Some(&[vec![0.0]]), 2).is_err(),
            "another shape"
        );
        assert!(estimator.advantages(&returns(), &[], Some(&returns()), 2).is_ok());
    }
}

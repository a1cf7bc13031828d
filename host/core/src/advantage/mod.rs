//! Stage 8: returns → advantages, one file per estimator.
//!
//! ```text
//! grpo        against the group's mean, over its spread (the paper's)
//! reinforce   against the mean of the batch
//! rloo        against the mean of the group's other completions
//! gae         against the values of a critic, for PPO
//! pairs       the best of a group against the worst, for DPO
//! signs       signs that a rule gives to any of them
//! ```
//!
//! R_t is the return of a token, R_k the mean return of completion k over its tokens.
//!
//! All algorithms take the same return per token. They differ in the advantages and in the loss:
//!
//! | | advantage of a token | loss |
//! | --- | --- | --- |
//! | GRPO | its return against the group's mean, over its spread | clipped surrogate + β·k3 |
//! | REINFORCE | against the mean of the batch | the same |
//! | RLOO | against the mean of the group's other completions | the same |
//! | PPO | GAE against a critic, whitened | the same, and the critic's own |
//! | DPO | 1 for the group's best completion, −1 for its worst | −log σ of β times the difference of the log-ratios |
//!
//! GSPO is GRPO with `loss.importance_sampling_level = "sequence"`.

mod gae;
mod grpo;
mod pairs;
mod reinforce;
mod rloo;
mod signs;

use serde::Serialize;

use crate::stats::{mean, unbiased_std};
use crate::{
    AdvantageSettings, Algorithm, BoxError, CreditKind, LearnSettings, PpoSettings, ScaleRewards,
    ScoredCompletion,
};

pub use gae::{GaeSettings, gae, whiten};
pub use grpo::{baselines, normalize};
pub use pairs::{Pair, pairs};
pub use signs::{signed, take_signs};

/// Differences and spreads of R_k below this count as zero: means of equal returns may differ by
/// rounding errors.
const ZERO_SPREAD: f64 = 1e-8;

/// Training signal of a step.
#[derive(Debug, Clone, PartialEq)]
pub enum Signal {
    /// Advantages of every token, for a policy gradient.
    Advantages(Advantages),
    /// Preferences between completions, for DPO.
    Pairs(Vec<Pair>),
}

/// Advantages of a step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Advantages {
    /// `[B][T]`, one row per rollout.
    pub values: Vec<Vec<f64>>,
    /// `[B][T]` targets of the critic's values; `None` without a critic.
    pub targets: Option<Vec<Vec<f64>>>,
}

/// Mean returns R_k of the completions of a step, as TRL logs them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ReturnStats {
    /// Mean R_k over the batch.
    pub reward: f64,
    /// Standard deviation of R_k: the mean over the groups, or the batch's if that is the scale.
    pub reward_std: f64,
    /// Share of groups whose standard deviation is zero, 0 to 1.
    pub frac_reward_zero_std: f64,
}

/// Baseline of a completion's returns.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Baseline {
    /// Subtracted from every return: GRPO's is the mean R_k of the group.
    pub centre: f64,
    /// Standard deviation of R_k: the group's, or the batch's if that is the scale.
    pub spread: f64,
    /// Divisor of the centred returns; `None`: the group is skipped.
    pub scale: Option<f64>,
}

impl Baseline {
    /// Returns the advantage of a token with this return.
    #[must_use]
    pub fn advantage(&self, token_return: f64) -> f64 {
        self.scale.map_or(0.0, |scale| (token_return - self.centre) / scale)
    }

    /// Returns the advantages of a completion's tokens.
    fn advantages(&self, returns: &[f64]) -> Vec<f64> {
        returns.iter().map(|token_return| self.advantage(*token_return)).collect()
    }
}

/// A way to compute the training signal from returns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Estimator {
    /// R_t less the mean R_j of the group, over their standard deviation: see [`normalize`].
    Grpo(AdvantageSettings),
    /// R_t less the mean R_k of the batch.
    Reinforce,
    /// R_t less the mean R_j of the group's other completions.
    Rloo,
    /// See [`gae()`]; whitened over the batch.
    Gae(GaeSettings),
    /// No advantages, but the best of each group against the worst: see [`pairs()`].
    Pairs,
}

impl Default for Estimator {
    fn default() -> Self {
        Self::Grpo(AdvantageSettings::default())
    }
}

impl Estimator {
    /// Returns the estimator of an algorithm; `normalization` is GRPO's.
    #[must_use]
    pub fn new(update: &LearnSettings, normalization: AdvantageSettings) -> Self {
        let PpoSettings { gamma, lambda, .. } = update.ppo;
        match update.algorithm {
            Algorithm::Grpo => Self::Grpo(normalization),
            Algorithm::Reinforce => Self::Reinforce,
            Algorithm::Rloo => Self::Rloo,
            Algorithm::Ppo => Self::Gae(GaeSettings { gamma, lambda }),
            Algorithm::Dpo => Self::Pairs,
        }
    }

    /// Returns the training signal of completions, in groups of `num_generations` next to each other.
    /// `values` are the critic's, `[B][T]`.
    ///
    /// # Errors
    /// - [`Self::Gae`] without `values`, or with some of another shape.
    /// - Token rewards with a baseline of the group or the batch: without a reward-to-go such a
    ///   reward would reach its own token alone, while it raises the baseline of all others.
    /// - Signs for [`Self::Pairs`]: a pair compares whole completions.
    ///
    /// # Panics
    /// If `num_generations` is 0.
    pub fn signal(
        &self,
        completions: &[ScoredCompletion],
        values: Option<&[Vec<f64>]>,
        num_generations: usize,
    ) -> Result<Signal, BoxError> {
        if completions.iter().any(ScoredCompletion::has_token_rewards) {
            self.check_credit(CreditKind::TokenRewards)?;
        }
        if completions.iter().any(ScoredCompletion::has_signs) {
            self.check_credit(CreditKind::AdvantageSign)?;
        }
        let mean_returns = mean_returns(completions);
        if *self == Self::Pairs {
            return Ok(Signal::Pairs(pairs(&mean_returns, num_generations)));
        }
        let mut advantages = match self.baselines(&mean_returns, num_generations) {
            Some(baselines) => subtract_baselines(completions, &baselines),
            None => self.generalized(completions, values)?,
        };
        for (completion, own_values) in completions.iter().zip(&mut advantages.values) {
            take_signs(own_values, &completion.advantage_signs);
        }
        Ok(Signal::Advantages(advantages))
    }

    /// Rejects a rule whose credit the estimator cannot use.
    ///
    /// # Errors
    /// As [`Self::signal`].
    pub fn check_credit(&self, credit: CreditKind) -> Result<(), BoxError> {
        let has_baseline = matches!(self, Self::Grpo(_) | Self::Reinforce | Self::Rloo);
        if credit == CreditKind::TokenRewards && has_baseline {
            return Err("the rule rewards single tokens, which needs PPO's advantages (GAE): set \
                        `update.algorithm = \"ppo\"`"
                .into());
        }
        if credit == CreditKind::AdvantageSign && *self == Self::Pairs {
            return Err("the rule sets signs of advantages, and DPO has none: choose another \
                        `update.algorithm`"
                .into());
        }
        Ok(())
    }

    /// Returns whitened advantages of GAE, and the critic's targets V + A before whitening.
    fn generalized(
        &self,
        completions: &[ScoredCompletion],
        values: Option<&[Vec<f64>]>,
    ) -> Result<Advantages, BoxError> {
        const NO_CRITIC: &str = "the policy has no critic that estimates a value for each token";
        let Self::Gae(settings) = self else { return Err(NO_CRITIC.into()) };
        let Some(values) = values else { return Err(NO_CRITIC.into()) };
        if values.len() != completions.len() {
            return Err(NO_CRITIC.into());
        }
        let mut advantages = Vec::with_capacity(completions.len());
        let mut targets = Vec::with_capacity(completions.len());
        for (completion, own_values) in completions.iter().zip(values) {
            if own_values.len() != completion.returns.len() {
                return Err(NO_CRITIC.into());
            }
            let own = gae(&completion.returns, &completion.token_rewards, own_values, settings);
            targets.push(own.iter().zip(own_values).map(|(a, v)| a + v).collect());
            advantages.push(own);
        }
        whiten(&mut advantages);
        Ok(Advantages { values: advantages, targets: Some(targets) })
    }

    /// Returns the baseline of each completion, from the R_k of all of a step; `None` if returns
    /// alone do not give it.
    ///
    /// # Panics
    /// If `num_generations` is 0.
    #[must_use]
    pub fn baselines(&self, mean_returns: &[f64], num_generations: usize) -> Option<Vec<Baseline>> {
        match self {
            Self::Grpo(settings) => {
                let groups = baselines(mean_returns, num_generations, settings);
                let indices = 0..mean_returns.len();
                Some(indices.map(|index| groups[index / num_generations]).collect())
            }
            Self::Reinforce => Some(reinforce::baselines(mean_returns, num_generations)),
            Self::Rloo => Some(rloo::baselines(mean_returns, num_generations)),
            Self::Gae(_) | Self::Pairs => None,
        }
    }

    /// Returns the statistics of R_k.
    ///
    /// # Panics
    /// If `num_generations` is 0.
    #[must_use]
    pub fn return_stats(
        &self,
        completions: &[ScoredCompletion],
        num_generations: usize,
    ) -> ReturnStats {
        let mean_returns = mean_returns(completions);
        let mut spreads = Vec::new();
        if num_generations > 1 {
            for group in mean_returns.chunks(num_generations) {
                spreads.push(unbiased_std(group));
            }
        }
        if let Self::Grpo(AdvantageSettings { scale_rewards: ScaleRewards::Batch, .. }) = self {
            spreads.fill(unbiased_std(&mean_returns));
        }
        let zero = spreads.iter().filter(|spread| **spread < ZERO_SPREAD).count();
        ReturnStats {
            reward: mean(&mean_returns),
            reward_std: mean(&spreads),
            frac_reward_zero_std: zero as f64 / spreads.len().max(1) as f64,
        }
    }

    /// Returns the minimum number of completions of a group.
    #[must_use]
    pub fn min_group_size(&self) -> usize {
        match self {
            // A completion alone has nothing to be compared with.
            Self::Grpo(_) | Self::Rloo | Self::Pairs => 2,
            Self::Reinforce | Self::Gae(_) => 1,
        }
    }
}

/// Returns the advantages of all tokens against the baselines of their completions.
fn subtract_baselines(completions: &[ScoredCompletion], baselines: &[Baseline]) -> Advantages {
    let mut values = Vec::with_capacity(completions.len());
    for (completion, baseline) in completions.iter().zip(baselines) {
        values.push(baseline.advantages(&completion.returns));
    }
    Advantages { values, targets: None }
}

/// Returns R_k of each completion.
fn mean_returns(completions: &[ScoredCompletion]) -> Vec<f64> {
    completions.iter().map(|completion| mean(&completion.returns)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two groups of two; R_k are 2, 4, 7 and 7.
    fn completions() -> Vec<ScoredCompletion> {
        let returns = [vec![1.0, 3.0], vec![4.0], vec![7.0], vec![7.0, 7.0]];
        let mut completions = Vec::new();
        for returns in returns {
            let token_rewards = vec![0.0; returns.len()];
            completions.push(ScoredCompletion { returns, token_rewards, ..Default::default() });
        }
        completions
    }

    fn with_token_reward() -> Vec<ScoredCompletion> {
        let mut completions = completions();
        completions[0].token_rewards[1] = 0.5;
        completions
    }

    fn critic() -> Vec<Vec<f64>> {
        completions().into_iter().map(|completion| completion.token_rewards).collect()
    }

    fn values(estimator: &Estimator) -> Vec<Vec<f64>> {
        match estimator.signal(&completions(), None, 2).unwrap() {
            Signal::Advantages(advantages) => advantages.values,
            Signal::Pairs(pairs) => panic!("{pairs:?}"),
        }
    }

    #[test]
    fn estimators_use_their_own_baselines() {
        let returns: Vec<Vec<f64>> = completions().into_iter().map(|one| one.returns).collect();
        let normalized = normalize(&returns, 2, &AdvantageSettings::default());
        assert_eq!(values(&Estimator::default()), normalized);
        let against_batch = [vec![-4.0, -2.0], vec![-1.0], vec![2.0], vec![2.0, 2.0]];
        assert_eq!(values(&Estimator::Reinforce), against_batch);
        let against_others = [vec![-3.0, -1.0], vec![2.0], vec![0.0], vec![0.0, 0.0]];
        assert_eq!(values(&Estimator::Rloo), against_others);
        let pairs = Estimator::Pairs.signal(&completions(), None, 2).unwrap();
        assert_eq!(pairs, Signal::Pairs(vec![Pair { chosen: 1, rejected: 0 }]));
    }

    #[test]
    fn mean_baselines_reject_token_rewards() {
        let completions = with_token_reward();
        for estimator in [Estimator::default(), Estimator::Reinforce, Estimator::Rloo] {
            let refused = estimator.signal(&completions, None, 2).unwrap_err().to_string();
            assert!(refused.contains("set `update.algorithm = \"ppo\"`"), "{refused}");
        }
        let gae = Estimator::Gae(GaeSettings { gamma: 1.0, lambda: 1.0 });
        assert!(gae.signal(&completions, Some(&critic()), 2).is_ok());
        // A pair compares whole completions.
        assert!(Estimator::Pairs.signal(&completions, None, 2).is_ok());
    }

    #[test]
    fn return_stats_agree_across_estimators() {
        for estimator in
            [Estimator::default(), Estimator::Reinforce, Estimator::Rloo, Estimator::Pairs]
        {
            let stats = estimator.return_stats(&completions(), 2);
            assert_eq!((stats.reward, stats.frac_reward_zero_std), (5.0, 0.5));
            assert_eq!(stats.reward_std, 2f64.sqrt() / 2.0);
        }
        let settings =
            AdvantageSettings { scale_rewards: ScaleRewards::Batch, ..Default::default() };
        let stats = Estimator::Grpo(settings).return_stats(&completions(), 2);
        assert_eq!((stats.reward_std, stats.frac_reward_zero_std), (6f64.sqrt(), 0.0));
        assert_eq!(Estimator::Reinforce.return_stats(&completions(), 1).frac_reward_zero_std, 0.0);
    }

    #[test]
    fn gae_needs_a_critic() {
        let estimator = Estimator::Gae(GaeSettings { gamma: 1.0, lambda: 0.95 });
        let error = estimator.signal(&completions(), None, 2).unwrap_err();
        assert!(error.to_string().contains("no critic"), "{error}");
        assert!(estimator.signal(&completions(), Some(&[vec![0.0]]), 2).is_err(), "another shape");
        assert!(estimator.signal(&completions(), Some(&critic()), 2).is_ok());
    }

    #[test]
    fn critic_targets_are_taken_before_whitening() {
        let estimator = Estimator::Gae(GaeSettings { gamma: 1.0, lambda: 1.0 });
        let signal = estimator.signal(&completions(), Some(&critic()), 2).unwrap();
        let Signal::Advantages(advantages) = signal else { panic!("{signal:?}") };
        let returns: Vec<Vec<f64>> = completions().into_iter().map(|one| one.returns).collect();
        assert_eq!(advantages.targets.unwrap(), returns, "with λ = 1 a target is the return");
        let values = advantages.values.concat();
        let square: f64 = values.iter().map(|value| value * value).sum();
        assert!(values.iter().sum::<f64>().abs() < 1e-12, "{values:?}");
        assert!((square - 5.0).abs() < 1e-6, "variance 1 of six tokens: {values:?}");
    }
}

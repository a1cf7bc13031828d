//! Algorithms that learn from the returns. All of them take the same return per token; they differ in
//! the advantages ([`crate::advantage`]) and in the loss.
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

use crate::advantage::GaeSettings;
use crate::{
    AdvantageSettings, Algorithm, Estimator, ImportanceLevel, LearnSettings, LossSettings,
    OldLogProbs, PpoSettings,
};

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
}

/// Returns the settings that differ from their defaults but that the algorithm does not use: each
/// setting's name, with the reason and the remedy.
#[must_use]
pub fn ignored_settings(
    update: &LearnSettings,
    advantage: &AdvantageSettings,
) -> Vec<(&'static str, String)> {
    let algorithm = update.algorithm;
    let grpo = algorithm == Algorithm::Grpo;
    let dpo = algorithm == Algorithm::Dpo;
    let loss = update.loss;
    let default = LearnSettings::default();
    let default_loss = LossSettings::default();
    let normalization = AdvantageSettings::default();
    let settings = [
        (
            !grpo && advantage.scale_rewards != normalization.scale_rewards,
            "advantage.scale_rewards",
        ),
        (!grpo && advantage.min_spread != normalization.min_spread, "advantage.min_spread"),
        (algorithm != Algorithm::Ppo && update.ppo != default.ppo, "update.ppo"),
        (!dpo && update.dpo != default.dpo, "update.dpo"),
        (dpo && loss.loss_type != default_loss.loss_type, "update.loss.loss_type"),
        (dpo && loss.epsilon_low != default_loss.epsilon_low, "update.loss.epsilon_low"),
        (dpo && loss.epsilon_high != default_loss.epsilon_high, "update.loss.epsilon_high"),
        (dpo && loss.delta.is_some(), "update.loss.delta"),
        (
            dpo && loss.importance_sampling_level != default_loss.importance_sampling_level,
            "update.loss.importance_sampling_level",
        ),
        (
            dpo && loss.importance_sampling_correction.is_some(),
            "update.loss.importance_sampling_correction",
        ),
        (
            dpo && loss.importance_sampling_cap != default_loss.importance_sampling_cap,
            "update.loss.importance_sampling_cap",
        ),
        (dpo && update.old_log_probs != default.old_log_probs, "update.old_log_probs"),
    ];
    let mut ignored = Vec::new();
    for (is_changed, key) in settings {
        if is_changed {
            let message =
                format!("not used by `update.algorithm = {:?}`; leave it out", algorithm.name());
            ignored.push((key, message));
        }
    }
    let corrects = loss.importance_sampling_correction == Some(true);
    if !dpo && corrects && update.old_log_probs == OldLogProbs::Sampled {
        let message = "not used with `update.old_log_probs = \"sampled\"`, whose ratio has the \
                       sampler's probabilities already; leave it out";
        ignored.push(("update.loss.importance_sampling_correction", message.to_owned()));
    }
    let is_capped = loss.importance_sampling_cap != default_loss.importance_sampling_cap;
    if !dpo && is_capped && update.old_log_probs == OldLogProbs::Sampled {
        let message = "not used with `update.old_log_probs = \"sampled\"`; leave it out";
        ignored.push(("update.loss.importance_sampling_cap", message.to_owned()));
    }
    let is_per_sequence = loss.importance_sampling_level == ImportanceLevel::Sequence;
    if algorithm == Algorithm::Ppo && is_per_sequence {
        let message = "\"sequence\", with which all tokens of a completion get the mean of PPO's \
                       advantages; set it to \"token\"";
        ignored.push(("update.loss.importance_sampling_level", message.to_owned()));
    }
    if dpo && loss.beta != default_loss.beta && loss.beta != 0.0 {
        let message = format!(
            "{}, which DPO does not use: its own β is `update.dpo.beta`; set this one to 0",
            loss.beta
        );
        ignored.push(("update.loss.beta", message));
    }
    if dpo && update.num_mini_batches != 1 {
        let message = format!(
            "{}; DPO's pairs of a step are one batch; set it to 1",
            update.num_mini_batches
        );
        ignored.push(("update.num_mini_batches", message));
    }
    if dpo && update.num_iterations != 1 {
        let message = format!(
            "{}; DPO takes one step on the pairs of a step, then draws new ones; set it to 1",
            update.num_iterations
        );
        ignored.push(("update.num_iterations", message));
    }
    ignored
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DpoSettings, LossType, ScaleRewards};

    const ALL: [Algorithm; 5] =
        [Algorithm::Grpo, Algorithm::Reinforce, Algorithm::Rloo, Algorithm::Ppo, Algorithm::Dpo];

    fn with(algorithm: Algorithm) -> LearnSettings {
        LearnSettings { algorithm, ..LearnSettings::default() }
    }

    fn keys(update: &LearnSettings, advantage: &AdvantageSettings) -> Vec<&'static str> {
        ignored_settings(update, advantage).into_iter().map(|(key, _)| key).collect()
    }

    #[test]
    fn algorithm_name_matches_serialised_form() {
        for algorithm in ALL {
            assert_eq!(serde_json::to_value(algorithm).unwrap(), algorithm.name());
        }
    }

    #[test]
    fn default_settings_suit_every_algorithm() {
        for algorithm in ALL {
            assert_eq!(keys(&with(algorithm), &AdvantageSettings::default()), [""; 0]);
        }
    }

    #[test]
    fn ignored_settings_are_listed_per_algorithm() {
        let batch = AdvantageSettings { scale_rewards: ScaleRewards::Batch, min_spread: 0.1 };
        assert_eq!(
            keys(&with(Algorithm::Rloo), &batch),
            ["advantage.scale_rewards", "advantage.min_spread"]
        );
        assert_eq!(keys(&with(Algorithm::Grpo), &batch), [""; 0]);
        let changed = LearnSettings {
            ppo: PpoSettings { lambda: 1.0, ..PpoSettings::default() },
            dpo: DpoSettings { beta: 0.2 },
            ..with(Algorithm::Grpo)
        };
        assert_eq!(keys(&changed, &AdvantageSettings::default()), ["update.ppo", "update.dpo"]);
        let loss = LossSettings {
            beta: 0.04,
            loss_type: LossType::Dapo,
            importance_sampling_level: ImportanceLevel::Sequence,
            ..LossSettings::default()
        };
        let sampled = LearnSettings {
            old_log_probs: OldLogProbs::Sampled,
            loss: LossSettings {
                importance_sampling_correction: Some(true),
                importance_sampling_cap: 3.0,
                ..loss
            },
            ..with(Algorithm::Ppo)
        };
        assert_eq!(
            keys(&sampled, &AdvantageSettings::default()),
            [
                "update.loss.importance_sampling_correction",
                "update.loss.importance_sampling_cap",
                "update.loss.importance_sampling_level"
            ]
        );
        let changed = LearnSettings { loss, num_iterations: 2, ..with(Algorithm::Dpo) };
        let expected = [
            "update.loss.loss_type",
            "update.loss.importance_sampling_level",
            "update.loss.beta",
            "update.num_iterations",
        ];
        assert_eq!(keys(&changed, &AdvantageSettings::default()), expected);
    }
}

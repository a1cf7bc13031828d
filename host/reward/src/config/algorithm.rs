//! Settings that have no effect, or that contradict the algorithm.

use corver_settings::{
    AdvantageSettings, Algorithm, Granularity, ImportanceLevel, LearnSettings, LossSettings,
    LossType, OldLogProbs, RewardSettings, Settings,
};
use serde_json::{Value, json};

const ALL_BUT_DPO: &[Algorithm] =
    &[Algorithm::Grpo, Algorithm::Reinforce, Algorithm::Rloo, Algorithm::Ppo];

/// Settings that only some algorithms use, each with these algorithms.
const OF_ALGORITHMS: [(&str, &[Algorithm]); 12] = [
    ("advantage.scale_rewards", &[Algorithm::Grpo]),
    ("advantage.min_spread", &[Algorithm::Grpo]),
    ("update.ppo", &[Algorithm::Ppo]),
    ("update.dpo", &[Algorithm::Dpo]),
    ("update.loss.loss_type", ALL_BUT_DPO),
    ("update.loss.epsilon_low", ALL_BUT_DPO),
    ("update.loss.epsilon_high", ALL_BUT_DPO),
    ("update.loss.delta", ALL_BUT_DPO),
    ("update.loss.importance_sampling_level", ALL_BUT_DPO),
    ("update.loss.importance_sampling_correction", ALL_BUT_DPO),
    ("update.loss.importance_sampling_cap", ALL_BUT_DPO),
    ("update.old_log_probs", ALL_BUT_DPO),
];

/// Returns the settings that differ from their defaults but have no effect, or that contradict the
/// algorithm: each setting's name, with the reason and the remedy.
pub(super) fn ignored_settings(settings: &Settings) -> Vec<(&'static str, String)> {
    let Settings { reward, update, .. } = settings;
    let algorithm = update.algorithm;
    let dpo = algorithm == Algorithm::Dpo;
    let loss = update.loss;
    let default_loss = LossSettings::default();
    let mut ignored = unused_settings(settings);
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
    } else if !dpo && is_capped && !corrects {
        let message = "the cap of `update.loss.importance_sampling_correction`, which is off; set \
                       that to true, or leave the cap out";
        ignored.push(("update.loss.importance_sampling_cap", message.to_owned()));
    }
    let is_per_sequence = loss.importance_sampling_level == ImportanceLevel::Sequence;
    if algorithm == Algorithm::Ppo && is_per_sequence {
        let message = "\"sequence\", with which all tokens of a completion get the mean of PPO's \
                       advantages; set it to \"token\"";
        ignored.push(("update.loss.importance_sampling_level", message.to_owned()));
    } else if !dpo && is_per_sequence && loss.loss_type != LossType::Grpo {
        let message = format!(
            "{}, with which GSPO would weight a completion by its length; set it to \"grpo\"",
            json!(loss.loss_type)
        );
        ignored.push(("update.loss.loss_type", message));
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
    let has_mean = reward.sentence_mean != RewardSettings::default().sentence_mean;
    if has_mean && reward.granularity == Granularity::Token {
        let message = "not used with `reward.granularity = \"token\"`; set that to \"response\", \
                       or leave the mean out";
        ignored.push(("reward.sentence_mean", message.to_owned()));
    }
    ignored
}

/// Returns the settings that differ from their defaults but that the algorithm does not use.
fn unused_settings(settings: &Settings) -> Vec<(&'static str, String)> {
    let algorithm = settings.update.algorithm;
    let values = sections(&settings.advantage, &settings.update);
    let defaults = sections(&AdvantageSettings::default(), &LearnSettings::default());
    let mut unused = Vec::new();
    for (key, algorithms) in OF_ALGORITHMS {
        let path = pointer(key);
        let is_changed = values.pointer(&path) != defaults.pointer(&path);
        if is_changed && !algorithms.contains(&algorithm) {
            let message =
                format!("not used by `update.algorithm = {:?}`; leave it out", algorithm.name());
            unused.push((key, message));
        }
    }
    unused
}

/// Returns the sections that have the settings of [`OF_ALGORITHMS`].
fn sections(advantage: &AdvantageSettings, update: &LearnSettings) -> Value {
    json!({ "advantage": advantage, "update": update })
}

/// Returns the JSON pointer of a setting.
fn pointer(key: &str) -> String {
    format!("/{}", key.replace('.', "/"))
}

#[cfg(test)]
mod tests {
    use corver_settings::{DpoSettings, PpoSettings, ScaleRewards, SentenceMean};

    use super::*;

    const ALL: [Algorithm; 5] =
        [Algorithm::Grpo, Algorithm::Reinforce, Algorithm::Rloo, Algorithm::Ppo, Algorithm::Dpo];

    fn with(algorithm: Algorithm) -> LearnSettings {
        LearnSettings { algorithm, ..LearnSettings::default() }
    }

    fn keys(update: &LearnSettings, advantage: &AdvantageSettings) -> Vec<&'static str> {
        let (update, advantage) = (*update, *advantage);
        let settings = Settings { update, advantage, ..Settings::default() };
        ignored_settings(&settings).into_iter().map(|(key, _)| key).collect()
    }

    /// Returns the keys for GRPO with this loss.
    fn keys_of_loss(loss: LossSettings) -> Vec<&'static str> {
        let update = LearnSettings { loss, ..with(Algorithm::Grpo) };
        keys(&update, &AdvantageSettings::default())
    }

    #[test]
    fn algorithm_name_matches_serialised_form() {
        for algorithm in ALL {
            assert_eq!(serde_json::to_value(algorithm).unwrap(), algorithm.name());
        }
    }

    #[test]
    fn settings_of_algorithms_exist() {
        let defaults = sections(&AdvantageSettings::default(), &LearnSettings::default());
        for (key, _) in OF_ALGORITHMS {
            assert!(defaults.pointer(&pointer(key)).is_some(), "{key}");
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

    #[test]
    fn cap_needs_a_correction_that_is_on() {
        let cap = ["update.loss.importance_sampling_cap"];
        let capped = LossSettings { importance_sampling_cap: 3.0, ..LossSettings::default() };
        let keys_with = |importance_sampling_correction| {
            keys_of_loss(LossSettings { importance_sampling_correction, ..capped })
        };
        assert_eq!(keys_with(None), cap);
        assert_eq!(keys_with(Some(false)), cap);
        assert_eq!(keys_with(Some(true)), [""; 0]);
    }

    #[test]
    fn sentence_mean_needs_one_reward_for_the_completion() {
        let keys_of = |granularity, sentence_mean| {
            let reward = RewardSettings { granularity, sentence_mean, ..RewardSettings::default() };
            let settings = Settings { reward, ..Settings::default() };
            ignored_settings(&settings).into_iter().map(|(key, _)| key).collect::<Vec<_>>()
        };
        let total = SentenceMean::Total;
        assert_eq!(keys_of(Granularity::Token, total), ["reward.sentence_mean"]);
        assert_eq!(keys_of(Granularity::Response, total), [""; 0]);
    }

    #[test]
    fn ratio_per_completion_needs_a_mean_per_completion() {
        let level = ImportanceLevel::Sequence;
        for loss_type in [LossType::Grpo, LossType::Bnpo, LossType::DrGrpo, LossType::Dapo] {
            let per_token = LossSettings { loss_type, ..LossSettings::default() };
            assert_eq!(keys_of_loss(per_token), [""; 0]);
            let gspo = LossSettings { importance_sampling_level: level, ..per_token };
            let is_refused = keys_of_loss(gspo) == ["update.loss.loss_type"];
            assert_eq!(is_refused, loss_type != LossType::Grpo, "{loss_type:?}");
        }
        let loss = LossSettings {
            loss_type: LossType::Dapo,
            importance_sampling_level: level,
            ..LossSettings::default()
        };
        let update = LearnSettings { loss, ..with(Algorithm::Grpo) };
        let problems = ignored_settings(&Settings { update, ..Settings::default() });
        assert!(problems[0].1.starts_with("\"dapo\", with which GSPO"), "{problems:?}");
    }
}

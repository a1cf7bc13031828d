//! Stage 9: rollouts and advantages → one optimiser step. [`crate::algorithm`] says which algorithms there are.
//!
//! Its settings are plain numbers and names, so that a build without libtorch reads and checks them as well.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::algorithm::{Algorithm, DpoSettings, PpoSettings};
use crate::{Advantages, PartError, Rollout};

/// What an update did; of several iterations, the last. Names are TRL's where TRL has one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct UpdateReport {
    /// Of the policy: clipped surrogate plus the weighted KL term, or DPO's.
    pub loss: f64,
    /// k3 estimate against the reference, nats per token; `None` where nothing is compared with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kl: Option<f64>,
    /// Global L2 norm before clipping.
    pub grad_norm: f64,
    /// The rate that this step used.
    pub learning_rate: f64,
    /// Mean entropy of the policy over the completion tokens, nats.
    pub entropy: f64,
    /// Share of tokens whose ratio was clipped from below while the advantage was negative.
    #[serde(rename = "clip_ratio/low_mean")]
    pub clip_ratio_low: f64,
    /// Share of tokens whose ratio was clipped from above while the advantage was positive.
    #[serde(rename = "clip_ratio/high_mean")]
    pub clip_ratio_high: f64,
    /// Of the first iteration; `None` where there was no token.
    #[serde(flatten)]
    pub mismatch: Option<Mismatch>,
    /// `None` where there is no critic.
    #[serde(flatten)]
    pub critic: Option<CriticReport>,
    /// `None` where nothing is learned from pairs.
    #[serde(flatten)]
    pub preference: Option<PreferenceReport>,
}

/// How well the critic expects what comes. The first two have the names of TRL's PPO.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CriticReport {
    /// Its loss.
    #[serde(rename = "loss/value_avg")]
    pub loss: f64,
    /// Share of tokens whose value was clipped.
    #[serde(rename = "val/clipfrac_avg")]
    pub clip_ratio: f64,
    /// 1 − var(target − V) ⁄ var(target), of the values before the update: 1 where all is foreseen, 0 where nothing is.
    #[serde(rename = "val/explained_variance")]
    pub explained_variance: f64,
}

/// What DPO made of the pairs of a step. Names are TRL's, but for the number of pairs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct PreferenceReport {
    /// Pairs: groups whose completions did not all earn the same.
    #[serde(rename = "rewards/pairs")]
    pub pairs: f64,
    /// Mean of β times the difference of the log-ratios, before the update.
    #[serde(rename = "rewards/margins")]
    pub margin: f64,
    /// Share of pairs for which that is above 0.
    #[serde(rename = "rewards/accuracies")]
    pub accuracy: f64,
}

/// How far the sampler was from the policy: log-probabilities noted while sampling (μ) against those of the policy before the update
/// (π), over the completion tokens. Names are TRL's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Mismatch {
    /// Mean of |log π − log μ|, nats.
    #[serde(rename = "sampling/sampling_logp_difference/mean")]
    pub difference_mean: f64,
    /// Its largest value.
    #[serde(rename = "sampling/sampling_logp_difference/max")]
    pub difference_max: f64,
    /// Smallest π ⁄ μ.
    #[serde(rename = "sampling/importance_sampling_ratio/min")]
    pub ratio_min: f64,
    /// Mean π ⁄ μ.
    #[serde(rename = "sampling/importance_sampling_ratio/mean")]
    pub ratio_mean: f64,
    /// Largest π ⁄ μ, before [`LossSettings::importance_cap`].
    #[serde(rename = "sampling/importance_sampling_ratio/max")]
    pub ratio_max: f64,
}

/// The policy, as something to improve.
pub trait Learner {
    /// May compute what the update on these rollouts needs besides their returns: it runs beside the reward, which computes those.
    /// A learner with a critic says what that expects of every token, `[B][T]`.
    ///
    /// # Errors
    /// Where the device fails.
    fn prepare(&mut self, rollouts: &[Rollout]) -> Result<Option<Vec<Vec<f64>>>, PartError> {
        let _ = rollouts;
        Ok(None)
    }

    /// One update from the rollouts of a step.
    ///
    /// # Errors
    /// Where the device fails or the loss is not finite; the iteration that meets it leaves the weights as they are.
    fn update(&mut self, rollouts: &[Rollout], advantages: &Advantages) -> Result<UpdateReport, PartError>;
}

/// How the policy learns; the defaults are the paper's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LearnSettings {
    /// What is learned from the returns, and how.
    pub algorithm: Algorithm,
    /// PPO's own constants.
    pub ppo: PpoSettings,
    /// DPO's own constants.
    pub dpo: DpoSettings,
    /// Size of the adapters.
    pub lora: LoraSettings,
    /// The loss.
    pub loss: LossSettings,
    /// Whose log-probabilities the importance ratio compares with.
    pub old_log_probs: OldLogProbs,
    /// μ, optimiser steps on the rollouts of one step. All compare with the policy before the first of them.
    pub num_iterations: usize,
    /// Peak rate.
    pub learning_rate: f64,
    /// Share of the steps in which the rate rises from 0.
    pub warmup_ratio: f64,
    /// Steps of the whole run; the schedule ends there. A training run puts its own number here.
    pub total_steps: usize,
    /// Limit of the gradients' joint L2 norm.
    pub max_grad_norm: f64,
    /// The optimiser's constants.
    pub optimizer: AdamWSettings,
    /// Tokens, padding included, that one forward and backward pass may hold. Bounds the memory; apart from rounding, the
    /// result does not depend on it.
    pub micro_batch_tokens: usize,
}

impl Default for LearnSettings {
    fn default() -> Self {
        Self {
            algorithm: Algorithm::Grpo,
            ppo: PpoSettings::default(),
            dpo: DpoSettings::default(),
            lora: LoraSettings::default(),
            loss: LossSettings::default(),
            old_log_probs: OldLogProbs::Recomputed,
            num_iterations: 1,
            learning_rate: 1e-5,
            warmup_ratio: 0.03,
            total_steps: 100,
            max_grad_norm: 1.0,
            optimizer: AdamWSettings::default(),
            micro_batch_tokens: 16_384,
        }
    }
}

impl LearnSettings {
    /// Whether a policy can learn with these.
    ///
    /// # Errors
    /// The first setting that is out of range.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        let rate = |x: f64| x.is_finite() && x >= 0.0;
        let share = |x: f64| (0.0..=1.0).contains(&x);
        let PpoSettings { gamma, lambda, value_clip, value_learning_rate } = self.ppo;
        let checks = [
            (share(gamma), "ppo.gamma", gamma, "a number from 0 to 1"),
            (share(lambda), "ppo.lambda", lambda, "a number from 0 to 1"),
            (value_clip > 0.0, "ppo.value_clip", value_clip, "a number above 0"),
            (rate(value_learning_rate), "ppo.value_learning_rate", value_learning_rate, "a finite number, 0 or more"),
            (self.dpo.beta > 0.0 && rate(self.dpo.beta), "dpo.beta", self.dpo.beta, "a finite number above 0"),
            (self.lora.r > 0, "lora.r", self.lora.r as f64, "a rank of 1 or more"),
            (rate(self.loss.beta), "loss.beta", self.loss.beta, "a finite number, 0 or more"),
            (self.num_iterations > 0, "num_iterations", self.num_iterations as f64, "1 or more"),
            (rate(self.learning_rate), "learning_rate", self.learning_rate, "a finite number, 0 or more"),
            (share(self.warmup_ratio), "warmup_ratio", self.warmup_ratio, "a number from 0 to 1"),
            (self.max_grad_norm > 0.0, "max_grad_norm", self.max_grad_norm, "a number above 0"),
            (self.micro_batch_tokens > 0, "micro_batch_tokens", self.micro_batch_tokens as f64, "1 or more"),
        ];
        match checks.into_iter().find(|(good, ..)| !good) {
            Some((_, key, got, expected)) => Err(InvalidSetting { key, got: got.to_string(), expected }),
            None => Ok(()),
        }
    }
}

/// Size of the adapters; the defaults are the paper's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoraSettings {
    /// Rank.
    pub r: usize,
    /// The adapter's output is scaled by `alpha / r`.
    pub alpha: f64,
}

impl Default for LoraSettings {
    fn default() -> Self {
        Self { r: 128, alpha: 256.0 }
    }
}

/// The loss; the defaults are the paper's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LossSettings {
    /// How token losses are averaged.
    pub loss_type: LossType,
    /// β, weight of the KL term; 0 spares the reference model.
    pub beta: f64,
    /// ε below 1.
    pub epsilon_low: f64,
    /// ε above 1.
    pub epsilon_high: f64,
    /// δ, an upper bound of the unclipped ratio; none by default.
    pub delta: Option<f64>,
    /// What the importance ratio belongs to.
    pub importance_sampling_level: ImportanceLevel,
    /// C: a token's policy term is weighted by min(π ⁄ μ, C), where a sampler μ drew what the policy π learns from (truncated
    /// importance sampling). 0 leaves it out. Not set: 2 where an engine samples, else it is left out. `Sampled` log-probabilities
    /// correct for the sampler themselves and leave it out too.
    pub importance_cap: Option<f64>,
}

impl Default for LossSettings {
    fn default() -> Self {
        Self {
            loss_type: LossType::Grpo,
            beta: 0.001,
            epsilon_low: 0.2,
            epsilon_high: 0.2,
            delta: None,
            importance_sampling_level: ImportanceLevel::Token,
            importance_cap: None,
        }
    }
}

/// How token losses are averaged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossType {
    /// Mean over the tokens of a completion, then over the completions.
    #[default]
    Grpo,
    /// Mean over all tokens of the batch.
    Bnpo,
    /// Sum over the tokens, divided by completions × maximal length.
    DrGrpo,
    /// Mean over all tokens of the step.
    Dapo,
}

/// What the importance ratio belongs to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImportanceLevel {
    /// Each token has its own.
    #[default]
    Token,
    /// One for the completion: the exponential of the mean log-ratio. This is GSPO (Zheng et al. 2025).
    Sequence,
}

/// Whose log-probabilities the importance ratio compares with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OldLogProbs {
    /// The policy itself before the update: with one update per batch the ratio is 1 (what TRL does then).
    #[default]
    Recomputed,
    /// Those noted while sampling: also corrects the rounding differences between decoding and training.
    Sampled,
}

/// AdamW's constants; the defaults are the paper's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdamWSettings {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled: weights shrink by `learning rate × weight_decay`.
    pub weight_decay: f64,
    /// How the moments are held between two steps.
    pub moments: MomentPrecision,
}

/// How the optimiser holds its moments between two steps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MomentPrecision {
    /// In f32.
    #[default]
    #[serde(rename = "f32")]
    F32,
    /// In 8 bits, with a scale for every 256 of them; the paper's runs on one GPU.
    #[serde(rename = "8bit")]
    Eight,
}

impl Default for AdamWSettings {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0, moments: MomentPrecision::F32 }
    }
}

/// Precision of the base model's weights; adapters and optimiser state are always f32.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// bf16 on a GPU, f32 on the CPU, where bf16 is slower.
    #[default]
    Auto,
    /// 32-bit floats.
    F32,
    /// bfloat16.
    Bf16,
}

/// Where a policy is asked to run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Device {
    /// The first GPU where there is one, else the processor.
    #[default]
    Auto,
    /// The processor.
    Cpu,
    /// The NVIDIA GPU of this number.
    Cuda(usize),
}

impl FromStr for Device {
    type Err = UnknownDevice;

    /// Reads `auto`, `cpu`, `cuda` or `cuda:N`.
    fn from_str(text: &str) -> Result<Self, UnknownDevice> {
        let number = text.strip_prefix("cuda:").map(str::parse);
        match (text, number) {
            ("auto", _) => Ok(Self::Auto),
            ("cpu", _) => Ok(Self::Cpu),
            ("cuda", _) => Ok(Self::Cuda(0)),
            (_, Some(Ok(number))) => Ok(Self::Cuda(number)),
            _ => Err(UnknownDevice { got: text.to_owned() }),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

/// The name of a device is none of the known forms.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the device {got:?} is not auto, cpu, cuda or cuda:N")]
pub struct UnknownDevice {
    /// The name.
    pub got: String,
}

/// A setting has a value that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` is {got}; it must be {expected}")]
pub struct InvalidSetting {
    /// The setting.
    pub key: &'static str,
    /// Its value.
    pub got: String,
    /// What it may be.
    pub expected: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_read_as_they_are_written() {
        for device in [Device::Auto, Device::Cpu, Device::Cuda(0), Device::Cuda(3)] {
            assert_eq!(device.to_string().parse::<Device>().unwrap(), device);
        }
        assert_eq!("cuda".parse::<Device>().unwrap(), Device::Cuda(0));
        for wrong in ["gpu", "cuda:", "cuda:x", "cuda0", "cuda:-1", ""] {
            assert_eq!(wrong.parse::<Device>().unwrap_err().got, wrong);
        }
    }

    #[test]
    fn settings_out_of_range_are_named() {
        assert_eq!(LearnSettings::default().check(), Ok(()));
        let wrong = [
            ("learning_rate", LearnSettings { learning_rate: f64::NAN, ..LearnSettings::default() }),
            ("max_grad_norm", LearnSettings { max_grad_norm: f64::NAN, ..LearnSettings::default() }),
            ("warmup_ratio", LearnSettings { warmup_ratio: 1.5, ..LearnSettings::default() }),
            (
                "ppo.lambda",
                LearnSettings {
                    ppo: PpoSettings { lambda: 1.5, ..PpoSettings::default() },
                    ..LearnSettings::default()
                },
            ),
            ("dpo.beta", LearnSettings { dpo: DpoSettings { beta: 0.0 }, ..LearnSettings::default() }),
            ("lora.r", LearnSettings { lora: LoraSettings { r: 0, alpha: 1.0 }, ..LearnSettings::default() }),
        ];
        for (key, settings) in wrong {
            assert_eq!(settings.check().unwrap_err().key, key);
        }
    }
}

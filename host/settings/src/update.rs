//! Section `update`: algorithm, loss, adapter and optimiser.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// Policy update; the defaults are the paper's for Llama-3.1-8B.
#[derive(Debug, Clone, Copy, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LearnSettings {
    /// Algorithm that learns from the returns.
    pub algorithm: Algorithm,
    /// Constants of PPO, for `algorithm = "ppo"`.
    pub ppo: PpoSettings,
    /// Constants of DPO, for `algorithm = "dpo"`.
    pub dpo: DpoSettings,
    /// Size of the adapters.
    pub lora: LoraSettings,
    /// Loss of the policy.
    pub loss: LossSettings,
    /// Log-probabilities in the denominator of the importance ratio.
    pub old_log_probs: OldLogProbs,
    /// μ, passes over the rollouts of one step. All compare with the policy before the first.
    #[default = 1]
    #[schemars(range(min = 1, max = 1000))]
    pub num_iterations: usize,
    /// Parts of equal size into which the rollouts of one step are divided, for an optimiser step on
    /// each; it divides their number. All compare with the policy before the first, so that PPO's
    /// clip acts from the second on.
    #[default = 1]
    #[schemars(range(min = 1, max = 1000))]
    pub num_mini_batches: usize,
    /// Peak learning rate of the policy.
    #[default = 1e-5]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub learning_rate: f64,
    /// Share of the steps in which the learning rate rises from 0.
    #[default = 0.03]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub warmup_ratio: f64,
    /// Steps of the learning-rate schedule, which the command sets.
    #[default = 100]
    #[serde(skip)]
    pub total_steps: usize,
    /// Largest L2 norm of all gradients together.
    #[default = 1.0]
    #[schemars(range(min = 1e-9, max = 1e9))]
    pub max_grad_norm: f64,
    /// Constants of the optimiser.
    pub optimizer: AdamWSettings,
    /// Tokens of one forward and backward pass. On a GPU, the keys of a prompt that each completion
    /// repeats count with their part of a token's memory. Apart from rounding, the result does not
    /// depend on it.
    #[default = 16_384]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub micro_batch_tokens: usize,
}

impl LearnSettings {
    /// True if the update compares the policy with the reference.
    #[must_use]
    pub fn needs_reference(&self) -> bool {
        self.algorithm == Algorithm::Dpo || self.loss.beta != 0.0
    }

    /// Returns the optimiser steps on the rollouts of one step.
    #[must_use]
    pub fn updates_per_step(&self) -> usize {
        self.num_iterations * self.num_mini_batches
    }
}

/// Algorithm that learns from the returns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// Group-relative advantages; the paper's.
    #[default]
    Grpo,
    /// The mean of the batch as the baseline.
    Reinforce,
    /// The mean of the group's other completions as the baseline.
    Rloo,
    /// A critic on the policy's hidden states.
    Ppo,
    /// Pairs of the best and the worst completion of a group.
    Dpo,
}

impl Algorithm {
    /// Returns the name as a setting spells it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Grpo => "grpo",
            Self::Reinforce => "reinforce",
            Self::Rloo => "rloo",
            Self::Ppo => "ppo",
            Self::Dpo => "dpo",
        }
    }
}

/// Constants of PPO; γ, λ and the clip are TRL's. The clip of the policy is that of
/// [`LossSettings`].
#[derive(Debug, Clone, Copy, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PpoSettings {
    /// Discount γ of generalised advantage estimation.
    #[default = 1.0]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub gamma: f64,
    /// Decay λ of generalised advantage estimation.
    #[default = 0.95]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub lambda: f64,
    /// Largest change of a value in one update that its loss still follows.
    #[default = 0.2]
    #[schemars(range(min = 1e-9, max = 1e9))]
    pub value_clip: f64,
    /// Peak learning rate of the critic, a linear layer on hidden states of some thousand numbers;
    /// it has the policy's schedule.
    #[default = 1e-4]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub value_learning_rate: f64,
}

/// Constants of direct preference optimisation.
#[derive(Debug, Clone, Copy, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DpoSettings {
    /// β: the larger, the nearer the policy stays to the reference. The default is TRL's.
    #[default = 0.1]
    #[schemars(range(min = 1e-9, max = 1e6))]
    pub beta: f64,
}

/// Size of the adapters; the defaults are the paper's.
#[derive(Debug, Clone, Copy, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoraSettings {
    /// Rank of the adapter matrices.
    #[default = 128]
    #[schemars(range(min = 1, max = 4096))]
    pub r: usize,
    /// Scale of the adapter's output, which is multiplied by `alpha / r`.
    #[default = 256.0]
    #[schemars(range(min = 0.0, max = 1e6))]
    pub alpha: f64,
}

/// Loss; the defaults are the paper's.
#[derive(Debug, Clone, Copy, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LossSettings {
    /// Mean of the token losses.
    pub loss_type: LossType,
    /// β, weight of the KL term; with 0 no reference is computed.
    #[default = 0.001]
    #[schemars(range(min = 0.0, max = 1e6))]
    pub beta: f64,
    /// ε below 1: the ratio is clipped at `1 - epsilon_low`.
    #[default = 0.2]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub epsilon_low: f64,
    /// ε above 1: the ratio is clipped at `1 + epsilon_high`.
    #[default = 0.2]
    #[schemars(range(min = 0.0, max = 1e6))]
    pub epsilon_high: f64,
    /// δ, upper bound of the unclipped ratio. Not set: no bound.
    #[schemars(range(min = 1.0, max = 1e6))]
    pub delta: Option<f64>,
    /// Unit that has one importance ratio.
    pub importance_sampling_level: ImportanceLevel,
    /// Truncated importance sampling: a token's policy term is weighted by min(π ⁄ μ, C), where a
    /// sampler μ drew what the policy π learns from. Not set: `true` if an engine samples and
    /// `update.old_log_probs` is `recomputed`.
    pub importance_sampling_correction: Option<bool>,
    /// C, the cap of `importance_sampling_correction`.
    #[default = 2.0]
    #[schemars(range(min = 1e-9, max = 1e6))]
    pub importance_sampling_cap: f64,
}

/// Mean of the token losses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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

/// Unit that has one importance ratio.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ImportanceLevel {
    /// One ratio per token.
    #[default]
    Token,
    /// One ratio per completion: the exponential of the mean log-ratio. This is GSPO (Zheng et al.
    /// 2025).
    Sequence,
}

/// Log-probabilities in the denominator of the importance ratio.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OldLogProbs {
    /// The policy's before the update: with one update per batch the ratio is 1, as in TRL.
    #[default]
    Recomputed,
    /// The sampler's: also corrects the rounding differences between decoding and training.
    Sampled,
}

/// Constants of AdamW; the defaults are the paper's.
#[derive(Debug, Clone, Copy, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AdamWSettings {
    /// Decay of the first moment.
    #[default = 0.9]
    #[schemars(range(min = 0.0, max = 0.999_999))]
    pub beta1: f64,
    /// Decay of the second moment.
    #[default = 0.999]
    #[schemars(range(min = 0.0, max = 0.999_999_999))]
    pub beta2: f64,
    /// Added to the root of the second moment.
    #[default = 1e-8]
    #[schemars(range(min = 1e-30, max = 1.0))]
    pub eps: f64,
    /// Decoupled weight decay: weights shrink by `learning rate × weight_decay`.
    #[default = 0.0]
    #[schemars(range(min = 0.0, max = 100.0))]
    pub weight_decay: f64,
    /// Precision of the moments between two steps.
    pub moments: MomentPrecision,
}

impl AdamWSettings {
    /// Returns the defaults with moments in f32.
    #[must_use]
    pub fn with_f32_moments() -> Self {
        Self { moments: MomentPrecision::F32, ..Self::default() }
    }
}

/// Precision of the optimiser's moments between two steps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MomentPrecision {
    /// 32-bit floating point.
    #[serde(rename = "f32")]
    F32,
    /// 8 bits, with a scale for every 256 moments; the paper's runs on one GPU.
    #[default]
    #[serde(rename = "8bit")]
    Eight,
}

//! What a run is going to take of a device's memory, worked out before anything is loaded: how many
//! rows can be decoded at once, and how many tokens can go through one forward and backward pass.
//!
//! The terms follow what the code holds. Those of the update's graph are the tensors that the
//! backward pass reads again.

use std::path::Path;

use corver_core::MomentPrecision;
use corver_core::{Device as Wanted, Precision};
use serde::Serialize;
use tch::{Device, Kind};

use crate::device::{find_device, kind};
use crate::error::{LearnError, Result};
use crate::memory;
use crate::sample::CACHE_BLOCK;
use crate::scores::chunk_rows;
use corver_pretrained::{Family, ModelConfig};

/// What a run asks of a device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Completions per prompt.
    pub num_generations: usize,
    /// Longest prompt, in tokens. `None`: no setting bounds it.
    pub max_prompt_length: Option<usize>,
    /// Tokens of the longest completion.
    pub max_completion_length: usize,
    /// Rows decoded at once, at most.
    pub max_rows: usize,
    /// Tokens of a forward and backward pass, at most.
    pub micro_batch_tokens: usize,
    /// Of the adapters.
    pub rank: usize,
    /// The optimiser's two.
    pub moments: MomentPrecision,
    /// Completions of a question that go through the update together, at least: a pair's two.
    pub rows_together: usize,
    /// The reference is an adapter too, which is kept beside the one that is trained.
    pub reference_adapter: bool,
}

/// Bytes by what takes them, and what they allow.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MemoryPlan {
    /// What is there to be taken.
    pub available: u64,
    /// Of the base model.
    pub weights: u64,
    /// Adapters, and the optimiser's two moments.
    pub adapters: u64,
    /// Rows decoded at once. Each is counted with a prompt of its own, as it has in an evaluation.
    pub rows: usize,
    /// Their keys and values, and those of their prompts.
    pub cache: u64,
    /// Their logits and probabilities, and the adapters in the precision of the weights.
    pub sampling: u64,
    /// Tokens of a forward and backward pass.
    pub micro_batch_tokens: usize,
    /// What the backward pass needs of one token.
    pub graph_per_token: u64,
    /// Gradients, logits of a few tokens, and the adapters in the precision of the weights.
    pub learning: u64,
}

/// Share of the memory that a plan gives away; the rest is for pieces too small to use, and for
/// what libraries keep. The C library's heap keeps far more holes than libtorch's allocator of a
/// GPU: up to half of what is in use.
fn share(device: Device) -> f64 {
    if device.is_cuda() { 0.9 } else { 0.6 }
}

/// Tokens that a prompt is taken to have where nothing bounds them.
const UNBOUNDED_PROMPT: usize = 1024;

/// f32 tensors of the size of the logits that exist at a time: logits, log-probabilities,
/// probabilities and what is made of them.
const LOGITS: u64 = 5;

impl MemoryPlan {
    /// Of the model in `folder`; `bytes` stand for what the device has free, which need not be
    /// there then.
    ///
    /// # Errors
    /// Those of [`ModelConfig::read`], [`find_device`], [`memory::free`] and [`MemoryPlan::new`].
    pub fn for_folder(
        folder: &Path,
        precision: Precision,
        device: Wanted,
        load: &Load,
        bytes: Option<u64>,
    ) -> Result<Self> {
        let config = ModelConfig::read(&folder.join("config.json"))?;
        let device = match (device, bytes) {
            (Wanted::Cuda(index), Some(_)) => Device::Cuda(usize::from(index)),
            _ => find_device(device)?,
        };
        let available = bytes.map_or_else(|| memory::free(device), Ok)?;
        Self::new(&config, kind(precision, device), device, load, available)
    }

    /// Fits `load` into `available` bytes of `device`, for a model whose weights are of this kind.
    ///
    /// # Errors
    /// [`LearnError::Device`] where not even one question's rows fit, or not even one row's update.
    pub fn new(
        config: &ModelConfig,
        kind: Kind,
        device: Device,
        load: &Load,
        available: u64,
    ) -> Result<Self> {
        let shape = Shape::new(config, kind, load);
        let budget = (available as f64 * share(device)) as u64;
        let [prompt, completion] = shape.lengths.map(|n| n as u64);
        let moments = match load.moments {
            MomentPrecision::F32 => 2 * 4 * shape.adapter_elements,
            MomentPrecision::Eight => {
                2 * shape.adapter_elements + 2 * 4 * shape.adapter_elements / 256
            }
        };
        let copies = 1 + u64::from(load.reference_adapter);
        let (weights, adapters) = (shape.weights, 4 * copies * shape.adapter_elements + moments);
        let chunk = LOGITS * 4 * (chunk_rows(device, config.vocab_size) * config.vocab_size) as u64;
        let learning = 2 * 4 * shape.adapter_elements + shape.factors + chunk;
        let refuse = |what: &str, needs: u64, remedy: &str| {
            let [needs, budget] = [needs, budget].map(|bytes| bytes as f64 / f64::from(1 << 30));
            LearnError::Device(format!(
                "{what} takes {needs:.1} GiB and {budget:.1} GiB are to be had: {remedy}, or take \
                 a larger device"
            ))
        };

        let capacity = (completion + CACHE_BLOCK as u64).next_multiple_of(CACHE_BLOCK as u64);
        // Growing and thinning copy the table of one layer at a time.
        let own = capacity * shape.cache_per_token * (config.num_layers as u64 + 1)
            / config.num_layers as u64;
        let cache = prompt * shape.cache_per_token + own;
        let sampling = prompt * shape.pass_per_token + LOGITS * 4 * config.vocab_size as u64;
        let at_rest = weights + adapters + shape.factors;
        let rows = budget.saturating_sub(at_rest) / (cache + sampling);
        if rows < load.num_generations as u64 {
            let remedy = "lower rollout.max_completion_length or rollout.num_generations";
            let needs = at_rest + load.num_generations as u64 * (cache + sampling);
            return Err(refuse("decoding one question's completions", needs, remedy));
        }
        let rows = rows.min(load.max_rows as u64);

        let fixed = weights + adapters + learning;
        let tokens = budget.saturating_sub(fixed) / shape.graph_per_token;
        let least = prompt + load.rows_together as u64 * completion;
        if tokens < least {
            let remedy = "lower update.lora.r or rollout.max_completion_length";
            let needs = fixed + least * shape.graph_per_token;
            return Err(refuse(
                "the update by the fewest completions that go together",
                needs,
                remedy,
            ));
        }
        Ok(Self {
            available,
            weights,
            adapters,
            rows: rows as usize,
            cache: rows * cache,
            sampling: shape.factors + rows * sampling,
            micro_batch_tokens: load.micro_batch_tokens.min(tokens as usize),
            graph_per_token: shape.graph_per_token,
            learning,
        })
    }

    /// Most bytes while completions are drawn.
    #[must_use]
    pub fn rollout(&self) -> u64 {
        self.weights + self.adapters + self.cache + self.sampling
    }

    /// Most bytes in an update with micro-batches of `tokens` tokens.
    #[must_use]
    pub fn update(&self, tokens: usize) -> u64 {
        self.weights + self.adapters + self.learning + tokens as u64 * self.graph_per_token
    }
}

/// Three lines, as the user of a run reads them.
impl std::fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let gib = |bytes: u64| bytes as f64 / f64::from(1u32 << 30);
        let (rows, tokens, per_token) =
            (self.rows, self.micro_batch_tokens, self.graph_per_token as f64 / 1e6);
        writeln!(
            f,
            "memory: {:.1} GiB free; the model takes {:.1}, its adapters and the optimiser {:.1}",
            gib(self.available),
            gib(self.weights),
            gib(self.adapters)
        )?;
        writeln!(
            f,
            "decoding {rows} rows at once: at most {:.1} GiB, {:.1} of it keys and values",
            gib(self.rollout()),
            gib(self.cache)
        )?;
        write!(
            f,
            "learning from {tokens} tokens at once: at most {:.1} GiB, {per_token:.2} MB of it per token",
            gib(self.update(tokens))
        )
    }
}

/// A model's sizes in bytes.
struct Shape {
    /// Tokens of the longest prompt and completion.
    lengths: [usize; 2],
    weights: u64,
    adapter_elements: u64,
    /// Adapters in the weights' precision.
    factors: u64,
    /// Keys and values.
    cache_per_token: u64,
    /// What a pass without a graph holds at its widest place.
    pass_per_token: u64,
    graph_per_token: u64,
}

impl Shape {
    fn new(config: &ModelConfig, kind: Kind, load: &Load) -> Self {
        let size = kind.elt_size_in_bytes() as u64;
        let [d, f, v, layers, r] = [
            config.hidden_size,
            config.intermediate_size,
            config.vocab_size,
            config.num_layers,
            load.rank,
        ]
        .map(|n| n as u64);
        let q = (config.num_heads * config.head_dim) as u64;
        let kv = (config.num_kv_heads * config.head_dim) as u64;
        let per_layer = 2 * d * (q + kv) + 3 * d * f;
        let embeddings = if config.tie_embeddings { v * d } else { 2 * v * d };
        // In and out of q, k, v, o, gate, up and down.
        let adapter_elements = layers * r * ((d + q) + 2 * (d + kv) + (q + d) + 3 * (d + f));
        let factors = if size == 4 { 0 } else { size * adapter_elements };

        let prompt = load.max_prompt_length.unwrap_or(UNBOUNDED_PROMPT);
        let completion = load.max_completion_length.min(config.max_positions);
        // Every completion has a copy of its prompt's keys and values beside its own; as many again
        // stand for short ones.
        let copies = 2 * kv * (1 + 2 * (prompt as u64).div_ceil(completion.max(1) as u64).max(1));
        let normed =
            if matches!(config.family, Family::Qwen3 | Family::Olmo2) { q + kv } else { 0 };
        // Of attention: x and its norm; queries, mixed values and both orders of those; low-rank
        // parts. Of the feed-forward block: x and its norm; gate, up and their product; low-rank
        // parts.
        let layer_graph = (2 * d + 3 * q + copies + normed + 4 * r) + (2 * d + 3 * f + 3 * r);
        // One more layer for what the backward pass makes, and the last hidden states in f32 with
        // their slopes.
        let graph_per_token = size * (layers + 1) * layer_graph + 4 * 4 * d;
        Self {
            lengths: [prompt, completion],
            weights: size * (layers * per_layer + embeddings),
            adapter_elements,
            factors,
            cache_per_token: size * layers * 2 * kv,
            pass_per_token: size * (3 * d + 2 * q + 3 * f),
            graph_per_token,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D, F, layers, query heads, key heads, vocabulary, tied; all with heads of 128.
    type Sizes = (usize, usize, usize, usize, usize, usize, bool);

    fn config(family: Family, (d, f, layers, heads, kv_heads, vocab, tied): Sizes) -> ModelConfig {
        ModelConfig {
            family,
            vocab_size: vocab,
            hidden_size: d,
            intermediate_size: f,
            num_layers: layers,
            num_heads: heads,
            num_kv_heads: kv_heads,
            head_dim: 128,
            max_positions: 4096,
            norm_eps: 1e-6,
            rope_theta: 1e6,
            rope_scaling: None,
            tie_embeddings: tied,
        }
    }

    /// The paper's step.
    const PAPER: Load = Load {
        num_generations: 16,
        max_prompt_length: Some(256),
        max_completion_length: 1024,
        max_rows: 512,
        micro_batch_tokens: 16_384,
        rank: 128,
        moments: MomentPrecision::F32,
        rows_together: 1,
        reference_adapter: false,
    };

    const GIB: f64 = (1u64 << 30) as f64;

    fn plan(config: &ModelConfig, gib: f64) -> Result<MemoryPlan> {
        MemoryPlan::new(config, Kind::BFloat16, Device::Cuda(0), &PAPER, (gib * GIB) as u64)
    }

    #[test]
    fn every_published_model_fits_80_and_141_gigabytes() {
        // Weights in GB (parameters × 2), and the least rows and tokens on an 80 GB A100 (79.2 GiB)
        // and a 141 GB H200 (139.8 GiB).
        let models = [
            (
                Family::Llama,
                (3072, 8192, 28, 24, 8, 128_256, true),
                6.4,
                [368, 384],
                [16_384, 16_384],
            ),
            (
                Family::Qwen3,
                (2560, 9728, 36, 32, 8, 151_936, true),
                8.0,
                [280, 384],
                [11_000, 16_384],
            ),
            (
                Family::Llama,
                (4096, 14_336, 32, 32, 8, 128_256, false),
                16.1,
                [256, 384],
                [8_000, 16_384],
            ),
            (
                Family::Qwen3,
                (4096, 12_288, 36, 32, 8, 151_936, false),
                16.4,
                [232, 384],
                [7_500, 16_000],
            ),
            (
                Family::Olmo2,
                (5120, 13_824, 40, 40, 40, 100_352, false),
                27.4,
                [32, 80],
                [3_300, 8_600],
            ),
            (
                Family::Qwen3,
                (5120, 17_408, 40, 40, 8, 151_936, false),
                29.5,
                [144, 352],
                [3_500, 9_400],
            ),
        ];
        for (family, sizes, weights, rows, tokens) in models {
            let config = config(family, sizes);
            for (at, gib) in [79.2, 139.8].into_iter().enumerate() {
                let plan = plan(&config, gib).unwrap();
                assert!(
                    (plan.weights as f64 / 1e9 - weights).abs() < 0.15,
                    "{sizes:?}: {}",
                    plan.weights
                );
                assert!(plan.rows >= rows[at], "{sizes:?} {gib}: {plan:?}");
                assert!(plan.micro_batch_tokens >= tokens[at], "{sizes:?} {gib}: {plan:?}");
                if (family, sizes.0) == (Family::Llama, 4096) {
                    assert!(plan.graph_per_token < 5_500_000, "{plan:?}");
                }
                let most = (gib * GIB) as u64;
                assert!(
                    plan.rollout().max(plan.update(plan.micro_batch_tokens)) < most,
                    "{sizes:?} {gib}: {plan:?}"
                );
            }
        }
    }

    #[test]
    fn impossible_memory_plan_error_names_remedy() {
        let llama = config(Family::Llama, (4096, 14_336, 32, 32, 8, 128_256, false));
        let told = |gib| plan(&llama, gib).unwrap_err().to_string();
        assert!(told(24.0).contains("rollout.max_completion_length"), "{}", told(24.0));
        let olmo = config(Family::Olmo2, (5120, 13_824, 40, 40, 40, 100_352, false));
        let error = plan(&olmo, 40.0).unwrap_err();
        let said = error.to_string();
        assert!(
            said.contains(" GiB are to be had: ") && said.ends_with("take a larger device"),
            "{said}"
        );
    }
}

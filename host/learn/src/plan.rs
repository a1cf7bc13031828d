//! A plan of the device memory of a run, computed before the policy is loaded: how many rows are
//! decoded together, and how many tokens go through one forward and backward pass.
//!
//! The terms follow the tensors of the code. Those of the update's graph are the tensors that the
//! backward pass reads again. With flash attention a pass has no padding, so its memory is exact for
//! completions of any lengths: its tokens, and the keys of prompts that completions repeat. A prefix
//! that prompts share counts for each of them, which is an upper bound.

use std::path::Path;

use corver_core::MomentPrecision;
use corver_core::{Device as Wanted, Precision};
use serde::Serialize;
use tch::{Device, Kind};

use crate::device::{find_device, kind};
use crate::error::{LearnError, Result};
use crate::libtorch;
use crate::memory;
use crate::model::{EMBEDDING, HEAD};
use crate::scores::chunk_rows;
use corver_pretrained::{ModelConfig, ModelFamily, weight_shapes};

/// Sizes of a run that decide its memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Workload {
    /// Completions per prompt; 1 or more.
    pub num_generations: usize,
    /// Longest prompt, tokens; `None` if no setting bounds it.
    pub max_prompt_length: Option<usize>,
    /// Longest completion that the policy learns from, tokens.
    pub max_completion_length: usize,
    /// Answers of an evaluation; `None` if the run has none.
    pub answers: Option<Answers>,
    /// Most rows that are decoded together.
    pub max_rows: usize,
    /// Most tokens of a forward and backward pass.
    pub micro_batch_tokens: usize,
    /// Rank of the adapters.
    pub rank: usize,
    /// Precision of the optimiser's two moments.
    pub moments: MomentPrecision,
    /// Fewest completions of a question that go through the update together: 2 for DPO's pairs.
    pub rows_together: usize,
    /// True if the reference is a second adapter instead of the base model.
    pub reference_adapter: bool,
}

/// Answers of an evaluation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Answers {
    /// Answers per question; 1 or more.
    pub samples: usize,
    /// Longest answer, tokens.
    pub max_length: usize,
}

/// Bytes by purpose, and the batch sizes that fit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MemoryPlan {
    /// Free bytes of the device.
    pub available: u64,
    /// Bytes of the base model.
    pub weights: u64,
    /// Bytes of the adapters and the optimiser's two moments.
    pub adapters: u64,
    /// Rows that are decoded together, if those of a question share their prompt.
    pub rows: usize,
    /// Prompts that are decoded together, if each has one row, or the answers of an evaluation.
    pub prompts: usize,
    /// Bytes of the keys and values of the rows and their prompts.
    pub cache: u64,
    /// Bytes of logits and probabilities or of the prompts' pass, and of the adapters in the precision
    /// of the weights.
    pub sampling: u64,
    /// Tokens of a forward and backward pass; copied keys count with their part of a token's memory.
    pub micro_batch_tokens: usize,
    /// Bytes of the graph, per token.
    pub graph_per_token: u64,
    /// Bytes of gradients, the logits of one chunk, and the adapters in the precision of the
    /// weights.
    pub learning: u64,
}

/// Returns the share of the free memory that a plan uses.
///
/// The rest is for fragments too small to use, and for buffers of libraries. The C library's heap
/// fragments far more than libtorch's allocator of a GPU: up to half of what is in use.
fn share(device: Device) -> f64 {
    if device.is_cuda() { 0.9 } else { 0.6 }
}

/// Assumed length of a prompt if no setting bounds it, tokens.
const UNBOUNDED_PROMPT: usize = 1024;

/// f32 tensors of the size of the logits that exist together: logits, log-probabilities,
/// probabilities and intermediates of the draw.
const LOGITS: u64 = 5;

const GIB: f64 = (1u64 << 30) as f64;

impl MemoryPlan {
    /// Returns two lines for the user of a run that does not decode.
    #[must_use]
    pub fn learning_lines(&self) -> [String; 2] {
        let memory = format!(
            "memory: {} free; the model takes {}, its adapters and the optimiser {}",
            memory_size(self.available),
            memory_size(self.weights),
            memory_size(self.adapters)
        );
        let update = format!(
            "learning from {} tokens together: at most {}, {:.2} MB of it per token",
            self.micro_batch_tokens,
            memory_size(self.update(self.micro_batch_tokens)),
            self.graph_per_token as f64 / 1e6
        );
        [memory, update]
    }

    /// Plans for the model in `folder`. With `bytes`, the plan is for that much free memory, and
    /// the device need not exist.
    ///
    /// # Errors
    /// Fails as [`ModelConfig::read`], [`weight_shapes`], [`find_device`], [`memory::free`] or
    /// [`MemoryPlan::new`].
    pub fn for_folder(
        folder: &Path,
        precision: Precision,
        device: Wanted,
        workload: &Workload,
        bytes: Option<u64>,
    ) -> Result<Self> {
        let mut config = ModelConfig::read(&folder.join("config.json"))?;
        // A stored output layer is loaded even if config.json ties it to the embedding.
        let stored = weight_shapes(folder)?;
        config.tie_embeddings &= !(stored.contains_key(HEAD) && stored.contains_key(EMBEDDING));
        let device = match (device, bytes) {
            (Wanted::Cuda(index), Some(_)) => Device::Cuda(usize::from(index)),
            _ => find_device(device)?,
        };
        let available = bytes.map_or_else(|| memory::free(device), Ok)?;
        Self::new(&config, kind(precision, device), device, workload, available)
    }

    /// Fits `workload` into `available` bytes of `device`, for a model with weights of this kind.
    ///
    /// # Errors
    /// Fails with [`LearnError::Device`] if the rows of one question do not fit, or the smallest
    /// update does not.
    pub fn new(
        config: &ModelConfig,
        kind: Kind,
        device: Device,
        workload: &Workload,
        available: u64,
    ) -> Result<Self> {
        let shape = Shape::new(config, kind, device, workload);
        let budget = (available as f64 * share(device)) as u64;
        let prompt = shape.prompt_length as u64;
        let completion = shape.completion_length as u64;
        let moments = match workload.moments {
            MomentPrecision::F32 => 2 * 4 * shape.adapter_elements,
            MomentPrecision::Eight => {
                2 * shape.adapter_elements + 2 * 4 * shape.adapter_elements / 256
            }
        };
        let copies = 1 + u64::from(workload.reference_adapter);
        let weights = shape.weights;
        let adapters = 4 * copies * shape.adapter_elements + moments;
        let chunk = LOGITS * 4 * (chunk_rows(device, config.vocab_size) * config.vocab_size) as u64;
        let learning = 2 * 4 * shape.adapter_elements + shape.factors + chunk;

        // Growing and thinning out the cache copies the table of one layer at a time.
        let layers = config.num_layers as u64;
        let cache_of = |tokens: u64| tokens * shape.cache_per_token * (layers + 1) / layers;
        let row_cache = cache_of(completion);
        let row_logits = LOGITS * 4 * config.vocab_size as u64;
        let prompt_cache = prompt * shape.cache_per_token;
        let prompt_pass = prompt * shape.pass_per_token;
        let at_rest = weights + adapters + shape.frozen_factors;
        // The prompts' pass is over before the rows have a cache.
        let question = |rows: u64, tokens: u64| {
            prompt_cache + prompt_pass.max(rows * (cache_of(tokens) + row_logits))
        };
        let fitting =
            |rows: u64, tokens: u64| budget.saturating_sub(at_rest) / question(rows, tokens);
        let generations = workload.num_generations as u64;
        if fitting(generations, completion) == 0 {
            let remedy = "lower rollout.max_completion_length or rollout.num_generations";
            let needs = at_rest + question(generations, completion);
            return Err(too_small("decoding one question's completions", needs, budget, remedy));
        }
        let rows = (fitting(generations, completion) * generations).min(workload.max_rows as u64);
        let mut prompts = fitting(1, completion).min(workload.max_rows as u64);
        if let Some(Answers { samples, max_length }) = workload.answers {
            let (samples, answer) = (samples as u64, max_length.min(config.max_positions) as u64);
            prompts = prompts.min(fitting(samples, answer));
            if prompts == 0 {
                let remedy = "lower eval.answers.max_completion_length or eval.answers.samples";
                let needs = at_rest + question(samples, answer);
                return Err(too_small("decoding one question's answers", needs, budget, remedy));
            }
        }
        let questions = rows.div_ceil(generations);
        let pass = (questions * prompt_pass).saturating_sub(rows * row_cache);

        let fixed = weights + adapters + learning;
        let fitting_tokens = budget.saturating_sub(fixed) / shape.graph_per_token;
        let together = workload.rows_together as u64;
        let min_keys = prompt + together * (prompt + completion);
        let min_tokens = prompt + together * completion + shape.tokens_of_keys(min_keys);
        if fitting_tokens < min_tokens {
            let remedy = "lower update.lora.r or rollout.max_completion_length";
            let needs = fixed + min_tokens * shape.graph_per_token;
            return Err(too_small("the smallest update", needs, budget, remedy));
        }
        Ok(Self {
            available,
            weights,
            adapters,
            rows: rows as usize,
            prompts: prompts as usize,
            cache: questions * prompt_cache + rows * row_cache,
            sampling: shape.frozen_factors + pass.max(rows * row_logits),
            micro_batch_tokens: workload.micro_batch_tokens.min(fitting_tokens as usize),
            graph_per_token: shape.graph_per_token,
            learning,
        })
    }

    /// Returns the peak while completions are sampled, bytes.
    #[must_use]
    pub fn rollout(&self) -> u64 {
        self.weights + self.adapters + self.cache + self.sampling
    }

    /// Returns the peak of an update with micro-batches of `tokens` tokens, bytes.
    #[must_use]
    pub fn update(&self, tokens: usize) -> u64 {
        self.weights + self.adapters + self.learning + tokens as u64 * self.graph_per_token
    }
}

fn too_small(what: &str, needs: u64, budget: u64, remedy: &str) -> LearnError {
    LearnError::Device(format!(
        "not enough memory: {what} takes {}, but {} are available; {remedy}, or use a larger device",
        memory_size(needs),
        memory_size(budget),
    ))
}

fn memory_size(bytes: u64) -> String {
    if gib(bytes) < 1.0 {
        format!("{:.1} MiB", gib(bytes) * 1024.0)
    } else {
        format!("{:.1} GiB", gib(bytes))
    }
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / GIB
}

/// Three lines for the user of a run.
impl std::fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [memory, update] = self.learning_lines();
        writeln!(f, "{memory}")?;
        writeln!(
            f,
            "decoding {} rows together: at most {}, {} of it keys and values",
            self.rows,
            memory_size(self.rollout()),
            memory_size(self.cache)
        )?;
        write!(f, "{update}")
    }
}

/// Sizes of a model and a workload; bytes unless the name says otherwise.
struct Shape {
    /// Longest prompt, tokens.
    prompt_length: usize,
    /// Longest completion that the model has positions for, tokens.
    completion_length: usize,
    weights: u64,
    adapter_elements: u64,
    /// Adapters in the precision of the weights.
    factors: u64,
    /// Adapters as decoding multiplies with them.
    frozen_factors: u64,
    /// Keys and values of one token.
    cache_per_token: u64,
    /// Widest point of a pass without a graph.
    pass_per_token: u64,
    graph_per_token: u64,
    key_share: f64,
}

/// Returns the memory of a copied key and its value in the graph, as a share of a token's; 0 on a
/// device without flash attention, where a token's memory includes copies.
pub(crate) fn key_share(config: &ModelConfig, kind: Kind, device: Device, rank: usize) -> f64 {
    if !libtorch::has_flash(kind, device) {
        return 0.0;
    }
    let size = kind.elt_size_in_bytes() as u64;
    let q = (config.num_heads * config.head_dim) as u64;
    let kv = (config.num_kv_heads * config.head_dim) as u64;
    // The backward pass of one layer repeats each key for the queries that share it.
    let key = size * (config.num_layers as u64 * 2 * kv + 2 * q + 2 * kv);
    key as f64 / flash_graph_per_token(config, kind, rank) as f64
}

/// Returns the bytes of a token in the graph with flash attention, without keys and values.
fn flash_graph_per_token(config: &ModelConfig, kind: Kind, rank: usize) -> u64 {
    let q = (config.num_heads * config.head_dim) as u64;
    // Queries, and mixed values with their normalisers in f32.
    graph_per_token(config, kind, rank, 2 * q + 2 * config.num_heads as u64)
}

/// Returns the bytes of a token in the graph, of which attention keeps `attention` numbers per layer.
fn graph_per_token(config: &ModelConfig, kind: Kind, rank: usize, attention: u64) -> u64 {
    let size = kind.elt_size_in_bytes() as u64;
    let d = config.hidden_size as u64;
    let f = config.intermediate_size as u64;
    let r = rank as u64;
    let heads = (config.num_heads + config.num_kv_heads) as u64;
    let has_qk_norm = matches!(config.family, ModelFamily::Qwen3 | ModelFamily::Olmo2);
    let normed = if has_qk_norm { heads * config.head_dim as u64 } else { 0 };
    // Attention: x and its norm; queries, keys, values; low-rank parts. Feed-forward: x and its norm;
    // gate, up and their product; low-rank parts.
    let layer = (2 * d + attention + normed + 4 * r) + (2 * d + 3 * f + 3 * r);
    // One more layer for the temporaries of the backward pass, and the last hidden states in f32 with
    // their gradients.
    size * (config.num_layers as u64 + 1) * layer + 4 * 4 * d
}

impl Shape {
    fn new(config: &ModelConfig, kind: Kind, device: Device, workload: &Workload) -> Self {
        let size = kind.elt_size_in_bytes() as u64;
        let d = config.hidden_size as u64;
        let f = config.intermediate_size as u64;
        let v = config.vocab_size as u64;
        let layers = config.num_layers as u64;
        let r = workload.rank as u64;
        let q = (config.num_heads * config.head_dim) as u64;
        let kv = (config.num_kv_heads * config.head_dim) as u64;
        let per_layer = 2 * d * (q + kv) + 3 * d * f;
        let embeddings = if config.tie_embeddings { v * d } else { 2 * v * d };
        // Inputs and outputs of q, k, v, o, gate, up and down.
        let adapter_elements = layers * r * ((d + q) + 2 * (d + kv) + (q + d) + 3 * (d + f));
        let factors = if size == 4 { 0 } else { size * adapter_elements };

        // On a GPU, B has the outputs of q, k and v for three ranks, and those of gate and up for two.
        let diagonal = layers * r * (2 * (q + 2 * kv) + 2 * f);
        let frozen_factors = factors + if device.is_cuda() { size * diagonal } else { 0 };

        let prompt_length = workload.max_prompt_length.unwrap_or(UNBOUNDED_PROMPT);
        let completion_length = workload.max_completion_length.min(config.max_positions);
        let graph_per_token = if libtorch::has_flash(kind, device) {
            flash_graph_per_token(config, kind, workload.rank)
        } else {
            // The keys and values of a prompt are copied for each of its completions. The factor 2
            // allows for short completions, which need more copies per token.
            let prompts_per_completion =
                (prompt_length as u64).div_ceil(completion_length.max(1) as u64).max(1);
            // Queries, and mixed values in two layouts.
            let attention = 3 * q + 2 * kv * (1 + 2 * prompts_per_completion);
            graph_per_token(config, kind, workload.rank, attention)
        };
        Self {
            prompt_length,
            completion_length,
            weights: size * (layers * per_layer + embeddings),
            adapter_elements,
            factors,
            frozen_factors,
            cache_per_token: size * layers * 2 * kv,
            pass_per_token: size * (3 * d + 2 * q + 3 * f),
            graph_per_token,
            key_share: key_share(config, kind, device, workload.rank),
        }
    }

    /// Returns the tokens that take as much memory as copied keys.
    fn tokens_of_keys(&self, keys: u64) -> u64 {
        (keys as f64 * self.key_share).ceil() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::micro_batch::{PassLimit, TrainingRow, split_rows};
    use corver_core::Rollout;

    /// D, F, layers, query heads, key heads, vocabulary, tied embeddings; heads have 128 dimensions.
    type Sizes = (usize, usize, usize, usize, usize, usize, bool);

    fn config(
        family: ModelFamily,
        (d, f, layers, heads, kv_heads, vocab, tied): Sizes,
    ) -> ModelConfig {
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

    /// Sizes of a training step of the paper.
    const PAPER: Workload = Workload {
        num_generations: 16,
        max_prompt_length: Some(256),
        max_completion_length: 1024,
        answers: None,
        max_rows: 512,
        micro_batch_tokens: 16_384,
        rank: 128,
        moments: MomentPrecision::F32,
        rows_together: 1,
        reference_adapter: false,
    };

    fn plan(config: &ModelConfig, gib: f64) -> Result<MemoryPlan> {
        MemoryPlan::new(config, Kind::BFloat16, Device::Cuda(0), &PAPER, (gib * GIB) as u64)
    }

    #[test]
    fn every_published_model_fits_80_and_141_gigabytes() {
        // Weights in GB (parameters × 2), and the fewest rows and tokens on an 80 GB A100 (79.2 GiB)
        // and a 141 GB H200 (139.8 GiB).
        let models = [
            (
                ModelFamily::Llama,
                (3072, 8192, 28, 24, 8, 128_256, true),
                6.4,
                [368, 384],
                [16_384, 16_384],
            ),
            (
                ModelFamily::Qwen3,
                (2560, 9728, 36, 32, 8, 151_936, true),
                8.0,
                [280, 384],
                [11_000, 16_384],
            ),
            (
                ModelFamily::Llama,
                (4096, 14_336, 32, 32, 8, 128_256, false),
                16.1,
                [256, 384],
                [8_000, 16_384],
            ),
            (
                ModelFamily::Qwen3,
                (4096, 12_288, 36, 32, 8, 151_936, false),
                16.4,
                [232, 384],
                [7_500, 16_000],
            ),
            (
                ModelFamily::Olmo2,
                (5120, 13_824, 40, 40, 40, 100_352, false),
                27.4,
                [32, 80],
                [3_300, 8_600],
            ),
            (
                ModelFamily::Qwen3,
                (5120, 17_408, 40, 40, 8, 151_936, false),
                29.5,
                [144, 352],
                [3_500, 9_400],
            ),
        ];
        for (family, sizes, weights, rows, tokens) in models {
            let config = config(family, sizes);
            for (device, gib) in [79.2, 139.8].into_iter().enumerate() {
                let plan = plan(&config, gib).unwrap();
                assert!(
                    (plan.weights as f64 / 1e9 - weights).abs() < 0.15,
                    "{sizes:?}: {}",
                    plan.weights
                );
                assert!(plan.rows >= rows[device], "{sizes:?} {gib}: {plan:?}");
                assert!(plan.micro_batch_tokens >= tokens[device], "{sizes:?} {gib}: {plan:?}");
                if (family, sizes.0) == (ModelFamily::Llama, 4096) {
                    assert!(plan.graph_per_token < 5_000_000, "{plan:?}");
                }
                let peak = plan.rollout().max(plan.update(plan.micro_batch_tokens));
                assert!(peak < (gib * GIB) as u64, "{sizes:?} {gib}: {plan:?}");
            }
        }
    }

    /// Returns the largest memory of a pass of the planned update, without what is fixed, as a share of
    /// the plan. The pass is counted tensor by tensor from the lengths of its rows.
    fn share_of_graph(config: &ModelConfig, gib: f64, prompt: usize, lengths: &[usize]) -> f64 {
        let plan = plan(config, gib).unwrap();
        let prompt = vec![1; prompt];
        let mut rollouts = Vec::new();
        for question in 0..24 {
            for &length in lengths {
                let tokens = vec![1; length];
                rollouts.push(Rollout { tokens, ..Rollout::of_text(question, String::new()) });
            }
        }
        let rows: Vec<TrainingRow<'_>> =
            rollouts.iter().map(|rollout| TrainingRow { prompt: &prompt, rollout }).collect();
        let kind = Kind::BFloat16;
        let limit = PassLimit {
            tokens: plan.micro_batch_tokens,
            key_share: key_share(config, kind, Device::Cuda(0), PAPER.rank),
        };
        let parts = split_rows(&rows, 0..rows.len(), limit, false);
        let [d, f] = [config.hidden_size, config.intermediate_size];
        let [q, kv] = [config.num_heads, config.num_kv_heads].map(|n| n * config.head_dim);
        let has_norm = matches!(config.family, ModelFamily::Qwen3 | ModelFamily::Olmo2);
        let mut largest = 0;
        for part in parts {
            let questions = part.chunk_by(|&a, &b| rollouts[a].question == rollouts[b].question);
            let prompts = questions.count() * prompt.len();
            let completions: usize = part.iter().map(|&n| rollouts[n].tokens.len()).sum();
            let tokens = prompts + completions;
            let keys = prompts + part.len() * prompt.len() + completions;
            let norms = if has_norm { q + kv } else { 0 };
            // x, its norm, q, mixed; x, its norm, gate, up, product; low-rank parts.
            let saved = (d + d + q + q + norms) + (d + d + 3 * f) + 7 * PAPER.rank;
            let layers = config.num_layers * (tokens * saved + keys * 2 * kv);
            // In the backward pass of a layer: the feed-forward's gradients; or attention's, with a
            // f32 sum for queries, and keys and values repeated for the queries that share them.
            let feed_forward = tokens * 5 * f;
            let attention = tokens * 4 * q + keys * (2 * q + 2 * kv);
            let bytes = 2 * (layers + feed_forward.max(attention)) + 16 * tokens * d;
            largest = largest.max(bytes);
        }
        largest as f64 / (plan.micro_batch_tokens as u64 * plan.graph_per_token) as f64
    }

    #[test]
    fn update_of_skewed_lengths_fits_its_plan() {
        let llama = config(ModelFamily::Llama, (4096, 14_336, 32, 32, 8, 128_256, false));
        let qwen = config(ModelFamily::Qwen3, (5120, 17_408, 40, 40, 8, 151_936, false));
        let olmo = config(ModelFamily::Olmo2, (5120, 13_824, 40, 40, 40, 100_352, false));
        let one = |longest: usize, others: usize| {
            let mut lengths = vec![others; 16];
            lengths[0] = longest;
            lengths
        };
        let mut two = one(1024, 150);
        two[1] = 1024;
        let spread = (0..16).map(|n| 75 + 9 * n).collect();
        let groups = [
            spread,
            one(1024, 150),
            two,
            one(1024, 300),
            one(1024, 40),
            one(1024, 1),
            vec![1; 16],
            vec![1024; 16],
        ];
        for config in [&llama, &qwen, &olmo] {
            for lengths in &groups {
                for prompt in [17, 170, 256] {
                    let share = share_of_graph(config, 139.8, prompt, lengths);
                    assert!(share < 1.0, "{:?} {lengths:?}: {share}", config.family);
                    assert!(
                        share > 0.6 || lengths[0] == 1,
                        "{:?} {lengths:?}: {share}",
                        config.family
                    );
                }
            }
        }
    }

    #[test]
    fn rows_of_a_question_share_its_prompt() {
        let llama = config(ModelFamily::Llama, (4096, 14_336, 32, 32, 8, 128_256, false));
        let published = Workload { moments: MomentPrecision::Eight, ..PAPER };
        let gib = |gib: f64| (gib * GIB) as u64;
        let plan = |config: &ModelConfig, workload: &Workload, bytes| {
            MemoryPlan::new(config, Kind::BFloat16, Device::Cuda(0), workload, bytes).unwrap()
        };
        // A step of 24 questions, 16 completions of 1,024 tokens each, on 80 GB.
        let step = plan(&llama, &published, gib(79.2));
        assert!(step.rows >= 384, "{step:?}");
        assert!(step.prompts < step.rows, "a prompt for each row needs more: {step:?}");
        // Completions of 150 tokens of OLMo-2: two waves.
        let olmo = config(ModelFamily::Olmo2, (5120, 13_824, 40, 40, 40, 100_352, false));
        let short =
            Workload { max_prompt_length: Some(170), max_completion_length: 150, ..published };
        assert!(plan(&olmo, &short, gib(79.2)).rows >= 192);
    }

    #[test]
    fn long_answers_take_memory_of_decoding_only() {
        let qwen = config(ModelFamily::Qwen2, (896, 4864, 24, 14, 2, 151_936, true));
        let plan = |answers, gib: f64| {
            let short = Workload { max_completion_length: 128, answers, ..PAPER };
            MemoryPlan::new(&qwen, Kind::BFloat16, Device::Cpu, &short, (gib * GIB) as u64)
        };
        let answers = |samples, max_length| Some(Answers { samples, max_length });
        let without = plan(None, 8.0).unwrap();
        let with = plan(answers(1, 1000), 8.0).unwrap();
        assert!(with.prompts < without.prompts, "{with:?}");
        assert_eq!(MemoryPlan { prompts: without.prompts, ..with }, without);
        // A question's answer is one row, although it has 16 completions.
        assert!(plan(answers(1, 4096), 6.0).is_ok());
        let error = plan(answers(32, 4096), 6.0).unwrap_err().to_string();
        assert!(error.contains("lower eval.answers.max_completion_length"), "{error}");
    }

    #[test]
    fn stored_output_layer_counts_although_config_ties_it() {
        let folder = tempfile::tempdir().unwrap();
        let model = crate::testing::tiny("llama", 5); // its output layer is its own
        model.save(folder.path()).unwrap();
        let weights = || {
            let workload =
                Workload { max_prompt_length: Some(8), max_completion_length: 8, rank: 2, ..PAPER };
            let bytes = Some(1 << 30);
            let device = Wanted::Cpu;
            MemoryPlan::for_folder(folder.path(), Precision::F32, device, &workload, bytes)
                .unwrap()
                .weights
        };
        let untied = weights();
        let path = folder.path().join("config.json");
        let text = std::fs::read_to_string(&path).unwrap();
        let (not_tied, tied) = ("_embeddings\": false", "_embeddings\": true");
        assert!(text.contains(not_tied));
        std::fs::write(&path, text.replace(not_tied, tied)).unwrap();
        assert_eq!(weights(), untied);
        let path = folder.path().join("model.safetensors");
        let mut tensors = crate::files::read_tensors(&path, None, Device::Cpu).unwrap();
        let _ = tensors.remove(HEAD).unwrap();
        crate::files::write_tensors(&path, &tensors.into_iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(weights(), untied - 4 * 23 * 16);
    }

    #[test]
    fn impossible_memory_plan_error_names_remedy() {
        let llama = config(ModelFamily::Llama, (4096, 14_336, 32, 32, 8, 128_256, false));
        let error = plan(&llama, 24.0).unwrap_err().to_string();
        assert!(error.contains("rollout.max_completion_length"), "{error}");
        let olmo = config(ModelFamily::Olmo2, (5120, 13_824, 40, 40, 40, 100_352, false));
        let error = plan(&olmo, 40.0).unwrap_err().to_string();
        assert!(
            error.contains(" GiB are available; ") && error.ends_with("use a larger device"),
            "{error}"
        );
    }
}

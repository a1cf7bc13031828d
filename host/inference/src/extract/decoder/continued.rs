//! Rows that continue one prompt, with the graph of [`crate::extract::graph::decoder`].

use std::path::Path;

use crate::onnx::graph::Float;
use crate::onnx::tensor::{empty, first_of_rows};
use crate::onnx::{DynValue, RunResult, RuntimeLibrary, Session, Tensor, session};
use corver_pretrained::{ModelConfig, check_shape, weight_shapes};

use super::cache::{CacheGraphs, RowCache};
use super::{Decoder, as_input, run_error};
use crate::extract::{ExtractError, Result, graph};

/// Most tokens of the prompt that are run together.
const PROMPT_PIECE: usize = 512;
/// Columns that a cache gets in addition to those that it needs now, so that it grows rarely.
const SPARE_COLUMNS: usize = 32;

/// A decoder over the weights of a Hugging Face folder, whose rows share one copy of the prompt.
pub(crate) struct Continued {
    session: Session,
    caches: CacheGraphs,
    /// Key `[Hkv, Dh, P]` and value `[Hkv, P, Dh]` of each layer.
    prompt: Vec<DynValue>,
    cache: RowCache,
    rows: Vec<CacheRow>,
}

#[derive(Clone, Copy)]
struct CacheRow {
    slot: usize,
    /// Number of tokens in the cache.
    length: usize,
}

/// Compares the sizes of config.json with the weights, before a graph of these sizes is written.
/// Returns the configuration with an output layer of its own if the folder has one: `transformers`
/// uses it even if config.json ties it to the embedding.
fn checked(folder: &Path, config: &ModelConfig) -> Result<ModelConfig> {
    let shapes = weight_shapes(folder)?;
    let check = |name: &str, shape: &[usize]| check_shape(folder, &shapes, name, shape);
    let width = config.hidden_size;
    check("model.embed_tokens.weight", &[config.vocab_size, width])?;
    let kv_width = config.num_kv_heads * config.head_dim;
    for layer in 0..config.num_layers {
        let prefix = format!("model.layers.{layer}");
        let query = [config.num_heads * config.head_dim, width];
        check(&format!("{prefix}.self_attn.q_proj.weight"), &query)?;
        check(&format!("{prefix}.self_attn.k_proj.weight"), &[kv_width, width])?;
        check(&format!("{prefix}.mlp.up_proj.weight"), &[config.intermediate_size, width])?;
    }
    let tie_embeddings = config.tie_embeddings && !shapes.contains_key("lm_head.weight");
    Ok(ModelConfig { tie_embeddings, ..config.clone() })
}

impl Continued {
    /// Loads the model of a folder and runs `prompt`. A row has at most `max_own` tokens after it.
    pub(crate) fn open(
        folder: &Path,
        config: &ModelConfig,
        prompt: &[u32],
        max_own: usize,
        gpu: Option<u16>,
        runtime: &RuntimeLibrary,
    ) -> Result<Self> {
        let config = &checked(folder, config)?;
        // A GPU computes in the type that such models are stored in.
        let float = if gpu.is_none() { Float::F32 } else { Float::Bf16 };
        let written = graph::decoder(config, float, prompt.len() + max_own);
        let session = session::build(&written, folder, gpu, runtime)?;
        let caches = CacheGraphs::open(config, float, gpu, runtime)?;
        let mut decoder = Self {
            session,
            caches,
            prompt: Vec::new(),
            cache: RowCache::default(),
            rows: Vec::new(),
        };
        decoder
            .run_prompt(prompt, config, float)
            .map_err(|source| run_error(1, prompt.len(), source))?;
        Ok(decoder)
    }

    /// Runs the prompt as the own tokens of one row, and shares its keys and values with all rows.
    fn run_prompt(&mut self, prompt: &[u32], config: &ModelConfig, float: Float) -> RunResult<()> {
        let ModelConfig { num_layers, num_kv_heads, head_dim, .. } = *config;
        for _ in 0..num_layers {
            self.prompt.push(empty(float.element_type(), &[num_kv_heads, head_dim, 0])?);
            self.prompt.push(empty(float.element_type(), &[num_kv_heads, 0, head_dim])?);
        }
        if prompt.is_empty() {
            return Ok(());
        }
        let mut cache = self.caches.create(1, prompt.len())?;
        for (n, piece) in prompt.chunks(PROMPT_PIECE).enumerate() {
            let start = (n * PROMPT_PIECE) as i64;
            let last = piece.len() as i64 - 1;
            self.run(&mut cache, as_input(piece).collect(), vec![start], vec![last])?;
        }
        self.prompt = self.caches.share_row(&cache)?;
        Ok(())
    }

    /// Runs `tokens`, `[slots, N]` row by row, after each row's first `start` tokens. Returns the
    /// most probable tokens after those in columns `last`.
    fn run(
        &mut self,
        cache: &mut RowCache,
        tokens: Vec<i64>,
        start: Vec<i64>,
        last: Vec<i64>,
    ) -> RunResult<BestTokens> {
        let slots = start.len();
        let width = tokens.len() / slots;
        let mut binding = self.session.create_binding()?;
        binding.bind_input("input_ids", &Tensor::from_array(([slots, width], tokens))?)?;
        binding.bind_input("start", &Tensor::from_array(([slots], start))?)?;
        binding.bind_input("last", &Tensor::from_array(([slots], last))?)?;
        for (n, (own, prompt)) in cache.tensors.iter_mut().zip(&self.prompt).enumerate() {
            let name = format!("{}.{}", n / 2, ["key", "value"][n % 2]);
            binding.bind_input(format!("prompt.{name}"), prompt)?;
            // Input and output are one tensor: the graph writes the new columns into it and copies
            // nothing.
            binding.bind_input(format!("own.{name}"), own)?;
            binding.bind_output(format!("next.{name}"), own)?;
        }
        let processor = session::output_memory(None)?;
        binding.bind_output_to_device("best", &processor)?;
        binding.bind_output_to_device("logit_sum", &processor)?;
        let outputs = self.session.run_binding(&binding)?;
        let ids = outputs["best"].try_extract_tensor::<i64>()?.1.to_vec();
        let logit_sums = first_of_rows(&outputs["logit_sum"])?;
        Ok(BestTokens { ids, logit_sums })
    }

    /// Moves all rows to adjacent slots of a cache of this size.
    fn resize(&mut self, slots: usize, columns: usize) -> RunResult<()> {
        let mut cache = self.caches.create(slots, columns)?;
        let old = std::mem::take(&mut self.cache);
        let moves: Vec<(usize, usize)> =
            self.rows.iter().enumerate().map(|(to, row)| (row.slot, to)).collect();
        self.caches.move_rows(&old, &mut cache, &moves, old.columns.min(columns))?;
        for (to, row) in self.rows.iter_mut().enumerate() {
            row.slot = to;
        }
        self.cache = cache;
        Ok(())
    }

    fn longest(&self) -> usize {
        self.rows.iter().map(|row| row.length).max().unwrap_or(0)
    }

    fn run_sentences(&mut self, sentences: &[&[u32]]) -> RunResult<BestTokens> {
        let width = sentences.iter().map(|ids| ids.len()).max().unwrap_or(0);
        let mut tokens = Vec::with_capacity(sentences.len() * width);
        let mut last = Vec::with_capacity(sentences.len());
        for ids in sentences {
            tokens.extend(as_input(ids));
            // The keys and values of the padding are overwritten by the reply's.
            tokens.extend(std::iter::repeat_n(0, width - ids.len()));
            last.push(ids.len() as i64 - 1);
        }
        let mut admitted = self.caches.create(sentences.len(), width)?;
        let best = self.run(&mut admitted, tokens, vec![0; sentences.len()], last)?;

        let slots = self.rows.len() + sentences.len();
        let longest = self.longest().max(width);
        if slots > self.cache.slots || longest >= self.cache.columns {
            self.resize(
                slots.max(self.cache.slots),
                (longest + SPARE_COLUMNS).max(self.cache.columns),
            )?;
        }
        let free =
            (0..self.cache.slots).filter(|slot| self.rows.iter().all(|row| row.slot != *slot));
        let free: Vec<usize> = free.take(sentences.len()).collect();
        let moves: Vec<(usize, usize)> = free.iter().copied().enumerate().collect();
        self.caches.move_rows(&admitted, &mut self.cache, &moves, width)?;
        for (&slot, ids) in free.iter().zip(sentences) {
            self.rows.push(CacheRow { slot, length: ids.len() });
        }
        Ok(best)
    }

    fn run_step(&mut self, tokens: &[u32]) -> RunResult<BestTokens> {
        let live = self.rows.len();
        let longest = self.longest();
        // Empty slots are computed too: the cache is compacted once a quarter of them is empty.
        if live * 4 <= self.cache.slots * 3 {
            self.resize(live, longest + SPARE_COLUMNS)?;
        } else if longest >= self.cache.columns {
            self.resize(self.cache.slots, longest + longest.div_ceil(4).max(SPARE_COLUMNS))?;
        }
        let mut ids = vec![0; self.cache.slots];
        let mut start = vec![0; self.cache.slots];
        for (row, &token) in self.rows.iter_mut().zip(tokens) {
            ids[row.slot] = i64::from(token);
            start[row.slot] = row.length as i64;
            row.length += 1;
        }
        let last = vec![0; self.cache.slots];
        let mut cache = std::mem::take(&mut self.cache);
        let best = self.run(&mut cache, ids, start, last);
        self.cache = cache;
        best
    }
}

/// The most probable next token of every slot.
struct BestTokens {
    ids: Vec<i64>,
    /// Sum of all logits of a slot; not finite if one of them is not.
    logit_sums: Vec<f32>,
}

impl BestTokens {
    /// Returns the tokens of the given slots. `columns` is the number of tokens per row so far.
    fn of_slots(&self, slots: impl Iterator<Item = usize>, columns: usize) -> Result<Vec<u32>> {
        let mut tokens = Vec::with_capacity(self.ids.len());
        for slot in slots {
            match u32::try_from(self.ids[slot]) {
                Ok(id) if self.logit_sums[slot].is_finite() => tokens.push(id),
                _ => return Err(ExtractError::NotFinite { columns }),
            }
        }
        Ok(tokens)
    }
}

impl Decoder for Continued {
    fn admit(&mut self, sentences: &[&[u32]]) -> Result<Vec<u32>> {
        let best = self.run_sentences(sentences).map_err(|source| {
            run_error(self.rows.len() + sentences.len(), self.longest(), source)
        })?;
        best.of_slots(0..sentences.len(), self.longest())
    }

    fn step(&mut self, tokens: &[u32]) -> Result<Vec<u32>> {
        let best = self
            .run_step(tokens)
            .map_err(|source| run_error(self.rows.len(), self.longest(), source))?;
        best.of_slots(self.rows.iter().map(|row| row.slot), self.longest())
    }

    fn retain(&mut self, rows: &[usize]) -> Result<()> {
        self.rows = rows.iter().map(|&row| self.rows[row]).collect();
        if rows.is_empty() {
            self.cache = RowCache::default();
        }
        Ok(())
    }

    fn admits_while_active(&self) -> bool {
        true
    }
}

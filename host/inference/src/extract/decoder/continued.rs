//! Rows that continue one prompt, with the graph of [`crate::extract::graph::decoder`].

use std::path::Path;

use crate::onnx::graph::Float;
use crate::onnx::tensor::{argmax, copied, shared_rows, zeros};
use crate::onnx::{
    AllocationDevice, DynValue, RunResult, RuntimeLibrary, Session, Tensor, TensorElementType,
    session,
};
use corver_pretrained::{ModelConfig, check_shape, weight_shapes};

use super::{Decoder, as_input, run_error};
use crate::extract::{ExtractError, Result, graph};

/// Most tokens of the prompt that are run together.
const PROMPT_PIECE: usize = 512;
/// Columns that a cache gets in addition to those that it needs now, so that it grows rarely.
const SPARE_COLUMNS: usize = 32;

/// A decoder over the weights of a Hugging Face folder, whose rows share one copy of the prompt.
pub(crate) struct Continued {
    session: Session,
    /// Graph that moves rows between caches.
    mover: Session,
    gpu: Option<u16>,
    /// Element type of keys and values.
    kv_type: TensorElementType,
    num_layers: usize,
    num_kv_heads: usize,
    head_dim: usize,
    /// Key `[Hkv, Dh, P]` and value `[Hkv, P, Dh]` of each layer.
    prompt: Vec<DynValue>,
    cache: RowCache,
    rows: Vec<CacheRow>,
}

/// Key and value of each layer, `[slots, Hkv, columns, Dh]`: those of the tokens after the prompt,
/// left-aligned. Columns that were never written are 0.
#[derive(Default)]
struct RowCache {
    tensors: Vec<DynValue>,
    slots: usize,
    columns: usize,
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
        let mover_graph = graph::row_mover(config.num_kv_heads, config.head_dim, float);
        let mover = session::build(&mover_graph, folder, gpu, runtime)?;
        let mut decoder = Self {
            session,
            mover,
            gpu,
            kv_type: float.element_type(),
            num_layers: config.num_layers,
            num_kv_heads: config.num_kv_heads,
            head_dim: config.head_dim,
            prompt: Vec::new(),
            cache: RowCache::default(),
            rows: Vec::new(),
        };
        decoder.run_prompt(prompt).map_err(|source| run_error(1, prompt.len(), source))?;
        Ok(decoder)
    }

    /// Runs the prompt as the own tokens of one row, and shares its keys and values with all rows.
    fn run_prompt(&mut self, prompt: &[u32]) -> RunResult<()> {
        let heads = self.num_kv_heads;
        let dim = self.head_dim;
        let empty = [[heads, dim, 0], [heads, 0, dim]];
        for n in 0..2 * self.num_layers {
            self.prompt.push(zeros(self.kv_type, &empty[n % 2])?);
        }
        if prompt.is_empty() {
            return Ok(());
        }
        let mut cache = self.new_cache(1, prompt.len())?;
        for (n, piece) in prompt.chunks(PROMPT_PIECE).enumerate() {
            let start = (n * PROMPT_PIECE) as i64;
            let last = piece.len() as i64 - 1;
            self.run(&mut cache, as_input(piece).collect(), vec![start], vec![last])?;
        }
        for (n, tensor) in cache.tensors.iter().enumerate() {
            let tensor = copied(tensor, AllocationDevice::CPU, 0)?;
            let shape = [heads, prompt.len(), dim];
            // Keys are transposed once here, not in every product with queries.
            let is_key = n % 2 == 0;
            let shared = shared_rows(&tensor, self.kv_type, shape, is_key)?;
            self.prompt[n] = self.to_device(shared)?;
        }
        Ok(())
    }

    /// Runs `tokens`, `[slots, N]` row by row, after each row's first `start` tokens. Returns the
    /// logits `[slots, V]` after the tokens in columns `last`.
    fn run(
        &mut self,
        cache: &mut RowCache,
        tokens: Vec<i64>,
        start: Vec<i64>,
        last: Vec<i64>,
    ) -> RunResult<DynValue> {
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
        binding.bind_output_to_device("logits", &session::output_memory(None)?)?;
        let mut outputs = self.session.run_binding(&binding)?;
        Ok(outputs.remove("logits").expect("it was bound by this name"))
    }

    fn new_cache(&self, slots: usize, columns: usize) -> RunResult<RowCache> {
        let shape = [slots, self.num_kv_heads, columns, self.head_dim];
        let mut tensors = Vec::with_capacity(2 * self.num_layers);
        for _ in 0..2 * self.num_layers {
            tensors.push(self.to_device(zeros(self.kv_type, &shape)?)?);
        }
        Ok(RowCache { tensors, slots, columns })
    }

    /// Copies the first `width` columns of rows to another cache. `moves` are pairs of slots, (from,
    /// to).
    fn move_rows(
        &mut self,
        from: &RowCache,
        into: &mut RowCache,
        moves: &[(usize, usize)],
        width: usize,
    ) -> RunResult<()> {
        if moves.is_empty() {
            return Ok(());
        }
        let sources: Vec<i64> = moves.iter().map(|(source, _)| *source as i64).collect();
        let targets: Vec<i64> = moves.iter().map(|(_, target)| *target as i64).collect();
        let sources = Tensor::from_array(([moves.len()], sources))?;
        let targets = Tensor::from_array(([moves.len()], targets))?;
        let width = Tensor::from_array(([1], vec![width as i64]))?;
        for (rows, target) in from.tensors.iter().zip(&mut into.tensors) {
            let mut binding = self.mover.create_binding()?;
            binding.bind_input("into", target)?;
            binding.bind_input("rows", rows)?;
            binding.bind_input("from", &sources)?;
            binding.bind_input("to", &targets)?;
            binding.bind_input("width", &width)?;
            binding.bind_output("placed", target)?;
            self.mover.run_binding(&binding)?;
        }
        Ok(())
    }

    /// Moves all rows to adjacent slots of a cache of this size.
    fn resize(&mut self, slots: usize, columns: usize) -> RunResult<()> {
        let mut cache = self.new_cache(slots, columns)?;
        let old = std::mem::take(&mut self.cache);
        let moves: Vec<(usize, usize)> =
            self.rows.iter().enumerate().map(|(to, row)| (row.slot, to)).collect();
        self.move_rows(&old, &mut cache, &moves, old.columns.min(columns))?;
        for (to, row) in self.rows.iter_mut().enumerate() {
            row.slot = to;
        }
        self.cache = cache;
        Ok(())
    }

    fn longest(&self) -> usize {
        self.rows.iter().map(|row| row.length).max().unwrap_or(0)
    }

    fn run_sentences(&mut self, sentences: &[&[u32]]) -> RunResult<DynValue> {
        let width = sentences.iter().map(|ids| ids.len()).max().unwrap_or(0);
        let mut tokens = Vec::with_capacity(sentences.len() * width);
        let mut last = Vec::with_capacity(sentences.len());
        for ids in sentences {
            tokens.extend(as_input(ids));
            // The keys and values of the padding are overwritten by the reply's.
            tokens.extend(std::iter::repeat_n(0, width - ids.len()));
            last.push(ids.len() as i64 - 1);
        }
        let mut admitted = self.new_cache(sentences.len(), width)?;
        let logits = self.run(&mut admitted, tokens, vec![0; sentences.len()], last)?;

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
        let mut cache = std::mem::take(&mut self.cache);
        let moved = self.move_rows(&admitted, &mut cache, &moves, width);
        self.cache = cache;
        moved?;
        for (&slot, ids) in free.iter().zip(sentences) {
            self.rows.push(CacheRow { slot, length: ids.len() });
        }
        Ok(logits)
    }

    fn run_step(&mut self, tokens: &[u32]) -> RunResult<DynValue> {
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
        let logits = self.run(&mut cache, ids, start, last);
        self.cache = cache;
        logits
    }

    fn to_device(&self, value: DynValue) -> RunResult<DynValue> {
        match self.gpu {
            None => Ok(value),
            Some(number) => copied(&value, AllocationDevice::CUDA, number),
        }
    }

    /// Returns the most probable token of the given rows of the logits.
    fn best(&self, logits: &DynValue, rows: impl Iterator<Item = usize>) -> Result<Vec<u32>> {
        let columns = self.longest();
        let best = argmax(logits).map_err(|source| run_error(self.rows.len(), columns, source))?;
        rows.map(|row| best[row].ok_or(ExtractError::NotFinite { columns })).collect()
    }
}

impl Decoder for Continued {
    fn admit(&mut self, sentences: &[&[u32]]) -> Result<Vec<u32>> {
        let logits = self.run_sentences(sentences).map_err(|source| {
            run_error(self.rows.len() + sentences.len(), self.longest(), source)
        })?;
        self.best(&logits, 0..sentences.len())
    }

    fn step(&mut self, tokens: &[u32]) -> Result<Vec<u32>> {
        let logits = self
            .run_step(tokens)
            .map_err(|source| run_error(self.rows.len(), self.longest(), source))?;
        self.best(&logits, self.rows.iter().map(|row| row.slot))
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

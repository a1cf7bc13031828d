//! Rows that continue one prompt, with the graph of [`crate::extract::graph::decoder`].

use std::path::Path;

use crate::onnx::graph::Float;
use crate::onnx::tensor::{argmax, copied, shared_rows, zeros};
use crate::onnx::{
    AllocationDevice, DynValue, RunResult, RuntimeLibrary, Session, Tensor, TensorElementType,
    session,
};
use corver_pretrained::{ModelConfig, ModelFamily, PretrainedError};

use super::{Decoder, as_input, run_error};
use crate::extract::{ExtractError, Result, graph};

/// Tokens of the prompt that are run at once.
const PROMPT_PIECE: usize = 512;
/// Columns by which a cache that is too short grows, and more than it would have to.
const SPARE_COLUMNS: usize = 32;

/// A model of Hugging Face's.
pub(crate) struct Continued {
    session: Session,
    /// Moves rows between caches.
    place: Session,
    gpu: Option<u16>,
    /// Of keys and values.
    kv_type: TensorElementType,
    num_layers: usize,
    num_kv_heads: usize,
    head_dim: usize,
    /// Key `[Hkv, Dh, P]` and value `[Hkv, P, Dh]` of each layer.
    prompt: Vec<DynValue>,
    cache: Cache,
    rows: Vec<Row>,
}

/// Key and value of each layer, `[slots, Hkv, columns, Dh]`: the tokens behind the prompt,
/// left-aligned. What was never written is 0.
#[derive(Default)]
struct Cache {
    tensors: Vec<DynValue>,
    slots: usize,
    columns: usize,
}

#[derive(Clone, Copy)]
struct Row {
    slot: usize,
    /// Tokens in the cache.
    length: usize,
}

impl Continued {
    /// Loads the model of a folder and runs `prompt`; a row may have `max_own` tokens behind it.
    pub(crate) fn open(
        folder: &Path,
        config: &ModelConfig,
        prompt: &[u32],
        max_own: usize,
        gpu: Option<u16>,
        runtime: &RuntimeLibrary,
    ) -> Result<Self> {
        if !matches!(config.family, ModelFamily::Llama | ModelFamily::Qwen2) {
            return Err(PretrainedError::InvalidModel(format!(
                "{}: an extractor of the family {:?} is not supported; Llama and Qwen2 are, or a \
                 graph that Optimum exported",
                folder.join("config.json").display(),
                config.family
            ))
            .into());
        }
        // A GPU computes in the type that such models are stored in.
        let float = if gpu.is_none() { Float::F32 } else { Float::Bf16 };
        let written = graph::decoder(config, float, prompt.len() + max_own);
        let session = session::build(&written, folder, gpu, runtime)?;
        let place = graph::place(config.num_kv_heads, config.head_dim, float);
        let place = session::build(&place, folder, gpu, runtime)?;
        let mut decoder = Self {
            session,
            place,
            gpu,
            kv_type: float.element_type(),
            num_layers: config.num_layers,
            num_kv_heads: config.num_kv_heads,
            head_dim: config.head_dim,
            prompt: Vec::new(),
            cache: Cache::default(),
            rows: Vec::new(),
        };
        decoder.run_prompt(prompt).map_err(|source| run_error(1, prompt.len(), source))?;
        Ok(decoder)
    }

    /// The prompt as the own tokens of one row, whose keys and values then become everybody's.
    fn run_prompt(&mut self, prompt: &[u32]) -> RunResult<()> {
        let (heads, dim) = (self.num_kv_heads, self.head_dim);
        let none = [[heads, dim, 0], [heads, 0, dim]];
        self.prompt = (0..2 * self.num_layers)
            .map(|n| zeros(self.kv_type, &none[n % 2]))
            .collect::<RunResult<_>>()?;
        if prompt.is_empty() {
            return Ok(());
        }
        let mut cache = self.new_cache(1, prompt.len())?;
        for (n, piece) in prompt.chunks(PROMPT_PIECE).enumerate() {
            let (start, last) = (n * PROMPT_PIECE, piece.len() - 1);
            self.run(&mut cache, as_input(piece).collect(), vec![start as i64], vec![last as i64])?;
        }
        let shared = cache.tensors.iter().enumerate().map(|(n, tensor)| {
            let (tensor, shape) = (self.to_host(tensor)?, [heads, prompt.len(), dim]);
            self.to_device(shared_rows(&tensor, self.kv_type, shape, n % 2 == 0)?)
        });
        self.prompt = shared.collect::<RunResult<_>>()?;
        Ok(())
    }

    /// Runs `tokens`, `[slots, N]` row by row, each row's behind its `start` tokens, and returns
    /// the logits `[slots, V]` after the tokens in columns `last`.
    fn run(
        &mut self,
        cache: &mut Cache,
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
        binding.bind_output_to_device("logits", &session::home(None)?)?;
        let mut outputs = self.session.run_binding(&binding)?;
        Ok(outputs.remove("logits").expect("it was bound by this name"))
    }

    fn new_cache(&self, slots: usize, columns: usize) -> RunResult<Cache> {
        let shape = [slots, self.num_kv_heads, columns, self.head_dim];
        let tensors =
            (0..2 * self.num_layers).map(|_| self.to_device(zeros(self.kv_type, &shape)?));
        Ok(Cache { tensors: tensors.collect::<RunResult<_>>()?, slots, columns })
    }

    /// Copies the first `width` columns of rows of one cache over those of another: (from, to)
    /// slots.
    fn move_rows(
        &mut self,
        from: &Cache,
        into: &mut Cache,
        moves: &[(usize, usize)],
        width: usize,
    ) -> RunResult<()> {
        if moves.is_empty() {
            return Ok(());
        }
        let slots = |of: fn(&(usize, usize)) -> usize| {
            Tensor::from_array((
                [moves.len()],
                moves.iter().map(|pair| of(pair) as i64).collect::<Vec<_>>(),
            ))
        };
        let (sources, targets) = (slots(|pair| pair.0)?, slots(|pair| pair.1)?);
        let width = Tensor::from_array(([1], vec![width as i64]))?;
        for (rows, target) in from.tensors.iter().zip(&mut into.tensors) {
            let mut binding = self.place.create_binding()?;
            binding.bind_input("into", target)?;
            binding.bind_input("rows", rows)?;
            binding.bind_input("from", &sources)?;
            binding.bind_input("to", &targets)?;
            binding.bind_input("width", &width)?;
            binding.bind_output("placed", target)?;
            self.place.run_binding(&binding)?;
        }
        Ok(())
    }

    /// Moves all rows into a cache of this size, next to each other.
    fn resize(&mut self, slots: usize, columns: usize) -> RunResult<()> {
        let mut cache = self.new_cache(slots, columns)?;
        let old = std::mem::take(&mut self.cache);
        let moves: Vec<(usize, usize)> =
            self.rows.iter().enumerate().map(|(to, row)| (row.slot, to)).collect();
        self.move_rows(&old, &mut cache, &moves, old.columns.min(columns))?;
        self.rows.iter_mut().enumerate().for_each(|(to, row)| row.slot = to);
        self.cache = cache;
        Ok(())
    }

    fn longest(&self) -> usize {
        self.rows.iter().map(|row| row.length).max().unwrap_or(0)
    }

    fn admit(&mut self, sentences: &[&[u32]]) -> RunResult<DynValue> {
        let width = sentences.iter().map(|ids| ids.len()).max().unwrap_or(0);
        // What pads a sentence at its end is written over by its reply.
        let tokens = sentences
            .iter()
            .flat_map(|ids| as_input(ids).chain(std::iter::repeat_n(0, width - ids.len())));
        let last = sentences.iter().map(|ids| ids.len() as i64 - 1).collect();
        let mut entering = self.new_cache(sentences.len(), width)?;
        let logits = self.run(&mut entering, tokens.collect(), vec![0; sentences.len()], last)?;

        let (slots, longest) = (self.rows.len() + sentences.len(), self.longest().max(width));
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
        let moved = self.move_rows(&entering, &mut cache, &moves, width);
        self.cache = cache;
        moved?;
        self.rows
            .extend(free.iter().zip(sentences).map(|(&slot, ids)| Row { slot, length: ids.len() }));
        Ok(logits)
    }

    fn advance(&mut self, tokens: &[u32]) -> RunResult<DynValue> {
        let (live, longest) = (self.rows.len(), self.longest());
        if live * 4 <= self.cache.slots * 3 {
            self.resize(live, longest + SPARE_COLUMNS)?;
        } else if longest >= self.cache.columns {
            self.resize(self.cache.slots, longest + longest.div_ceil(4).max(SPARE_COLUMNS))?;
        }
        let (mut ids, mut start) = (vec![0; self.cache.slots], vec![0; self.cache.slots]);
        for (row, &token) in self.rows.iter_mut().zip(tokens) {
            (ids[row.slot], start[row.slot]) = (i64::from(token), row.length as i64);
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

    fn to_host(&self, value: &DynValue) -> RunResult<DynValue> {
        copied(value, AllocationDevice::CPU, 0)
    }

    /// The most likely token of these rows of the logits.
    fn best(&self, logits: &DynValue, rows: impl Iterator<Item = usize>) -> Result<Vec<u32>> {
        let columns = self.longest();
        let best = argmax(logits).map_err(|source| run_error(self.rows.len(), columns, source))?;
        rows.map(|row| best[row].ok_or(ExtractError::NotFinite { columns })).collect()
    }
}

impl Decoder for Continued {
    fn enter(&mut self, sentences: &[&[u32]]) -> Result<Vec<u32>> {
        let logits = self.admit(sentences).map_err(|source| {
            run_error(self.rows.len() + sentences.len(), self.longest(), source)
        })?;
        self.best(&logits, 0..sentences.len())
    }

    fn step(&mut self, tokens: &[u32]) -> Result<Vec<u32>> {
        let logits = self
            .advance(tokens)
            .map_err(|source| run_error(self.rows.len(), self.longest(), source))?;
        self.best(&logits, self.rows.iter().map(|row| row.slot))
    }

    fn keep(&mut self, rows: &[usize]) -> Result<()> {
        self.rows = rows.iter().map(|&row| self.rows[row]).collect();
        if rows.is_empty() {
            self.cache = Cache::default();
        }
        Ok(())
    }

    fn takes_more(&self) -> bool {
        true
    }
}

//! Rows in the form that Optimum exports: every row contains the prompt, and every step copies all
//! keys and values.

use std::ops::Range;
use std::path::Path;

use crate::onnx::graph::Float;
use crate::onnx::tensor::{argmax, empty};
use crate::onnx::{DynValue, MemoryInfo, RunResult, RuntimeLibrary, Session, Tensor, session};
use corver_pretrained::PretrainedError;

use super::layout::Layout;
use super::{Decoder, as_input, run_error};
use crate::extract::settings::ExtractorSettings;
use crate::extract::{ExtractError, Result, graph};

/// A decoder over a `text-generation-with-past` graph.
pub(crate) struct Exported {
    session: Session,
    layout: Layout,
    selector: RowSelector,
    /// Number of logits per token, V.
    vocab_size: usize,
    max_logits: usize,
    /// Keys and values of the prompt, one row.
    prompt: ExportedRows,
    rows: ExportedRows,
    /// Indices in `rows` of the rows that have not been removed.
    live: Vec<usize>,
}

/// Keys and values of rows of tokens.
#[derive(Default)]
struct ExportedRows {
    /// Key and value of each layer, `[B, heads, columns, dim]`, on the device unless they are
    /// empty.
    past: Vec<DynValue>,
    columns: usize,
    /// Columns of padding of each row.
    pads: Vec<Range<usize>>,
}

/// Most logits of a run, 256 MiB of f32. Long prompts over large vocabularies are run in pieces.
const MAX_LOGITS: usize = 1 << 26;

impl Exported {
    /// Loads the graph at `path` and runs `prompt`. `tokens` is the size of the tokenizer's vocabulary.
    pub(crate) fn open(
        path: &Path,
        settings: &ExtractorSettings,
        prompt: &[u32],
        tokens: usize,
        gpu: Option<u16>,
        runtime: &RuntimeLibrary,
    ) -> Result<Self> {
        let session = session::open(path, gpu, runtime)?;
        let layout = Layout::read(&session, settings, path)?;
        let vocab_size = layout.vocab_size.unwrap_or(tokens);
        if vocab_size < tokens {
            let expected = format!("logits for the {tokens} tokens of tokenizer.json");
            return Err(PretrainedError::malformed(path, expected, vocab_size).into());
        }
        let selector = RowSelector::open(layout.kv_type, gpu, runtime)?;
        let mut decoder = Self {
            session,
            layout,
            selector,
            vocab_size,
            max_logits: MAX_LOGITS,
            prompt: ExportedRows::default(),
            rows: ExportedRows::default(),
            live: Vec::new(),
        };
        let mut rows = decoder.empty_row()?;
        if !prompt.is_empty() {
            decoder.extend(&mut rows, &as_input(prompt).collect::<Vec<_>>())?;
        }
        decoder.prompt = rows;
        Ok(decoder)
    }

    /// Returns one row without tokens.
    fn empty_row(&self) -> Result<ExportedRows> {
        let shape = [1, self.layout.num_kv_heads, 0, self.layout.head_dim];
        let mut past = Vec::new();
        for _ in 0..2 * self.layout.layers.len() {
            let empty = empty(self.layout.kv_type.element_type(), &shape);
            past.push(empty.map_err(|source| run_error(1, 0, source))?);
        }
        Ok(ExportedRows { past, columns: 0, pads: std::iter::once(0..0).collect() })
    }

    /// Runs further tokens of each row, `[B, width]` row by row, and returns the most probable next
    /// token of each.
    fn extend(&mut self, rows: &mut ExportedRows, tokens: &[i64]) -> Result<Vec<u32>> {
        let num_rows = rows.pads.len();
        let width = tokens.len() / num_rows;
        let piece = (self.max_logits / (num_rows * self.vocab_size)).clamp(1, width);
        let mut logits = None;
        for start in (0..width).step_by(piece) {
            let end = (start + piece).min(width);
            let columns: Vec<i64> = tokens
                .chunks_exact(width)
                .flat_map(|row| row[start..end].iter().copied())
                .collect();
            logits = Some(
                self.run(rows, columns)
                    .map_err(|source| run_error(num_rows, rows.columns, source))?,
            );
        }
        let logits = logits.expect("a row has at least one further token");
        let best = argmax(&logits).map_err(|source| run_error(num_rows, rows.columns, source))?;
        best.into_iter()
            .map(|id| id.ok_or(ExtractError::NotFinite { columns: rows.columns }))
            .collect()
    }

    /// Runs the graph once: appends the new columns to `rows`, and returns the logits `[B, T, V]` on
    /// the CPU.
    fn run(&mut self, rows: &mut ExportedRows, tokens: Vec<i64>) -> RunResult<DynValue> {
        let num_rows = rows.pads.len();
        let width = tokens.len() / num_rows;
        let total = rows.columns + width;
        let mut binding = self.session.create_binding()?;
        binding.bind_input("input_ids", &Tensor::from_array(([num_rows, width], tokens))?)?;
        binding.bind_input(
            "attention_mask",
            &Tensor::from_array(([num_rows, total], rows.mask(total)))?,
        )?;
        binding.bind_input(
            "position_ids",
            &Tensor::from_array(([num_rows, width], rows.positions(total)))?,
        )?;
        binding.bind_output_to_device("logits", &MemoryInfo::default())?;
        for ([past_key, past_value, present_key, present_value], past) in
            self.layout.layers.iter().zip(rows.past.chunks_exact(2))
        {
            binding.bind_input(past_key, &past[0])?;
            binding.bind_input(past_value, &past[1])?;
            binding.bind_output_to_device(present_key, &self.selector.memory)?;
            binding.bind_output_to_device(present_value, &self.selector.memory)?;
        }
        let mut outputs = self.session.run_binding(&binding)?;
        let bound = "every output was bound by this name";
        rows.past.clear();
        for [_, _, present_key, present_value] in &self.layout.layers {
            rows.past.push(outputs.remove(present_key).expect(bound));
            rows.past.push(outputs.remove(present_value).expect(bound));
        }
        rows.columns = total;
        Ok(outputs.remove("logits").expect(bound))
    }
}

/// The graph that selects rows of keys and values on their device.
struct RowSelector {
    session: Session,
    /// Memory of keys and values.
    memory: MemoryInfo<'static>,
}

impl RowSelector {
    fn open(float: Float, gpu: Option<u16>, runtime: &RuntimeLibrary) -> Result<Self> {
        // The graph has no weights, so no folder is read.
        let session = session::build(&graph::row_selector(float), Path::new(""), gpu, runtime)?;
        let memory = session::output_memory(gpu).map_err(|error| runtime.unusable(error))?;
        Ok(Self { session, memory })
    }

    /// Returns the rows with the given indices, in that order. An index may repeat.
    fn select(&mut self, rows: &ExportedRows, indices: &[usize]) -> Result<ExportedRows> {
        let past = self
            .select_tensors(&rows.past, indices)
            .map_err(|source| run_error(indices.len(), rows.columns, source))?;
        let pads = indices.iter().map(|&row| rows.pads[row].clone()).collect();
        Ok(ExportedRows { past, columns: rows.columns, pads })
    }

    fn select_tensors(
        &mut self,
        tensors: &[DynValue],
        indices: &[usize],
    ) -> RunResult<Vec<DynValue>> {
        let indices: Vec<i64> = indices.iter().map(|&row| row as i64).collect();
        let indices = Tensor::from_array(([indices.len()], indices))?;
        let mut all_selected = Vec::with_capacity(tensors.len());
        for rows in tensors {
            let mut binding = self.session.create_binding()?;
            binding.bind_input("rows", rows)?;
            binding.bind_input("indices", &indices)?;
            binding.bind_output_to_device("selected", &self.memory)?;
            let mut outputs = self.session.run_binding(&binding)?;
            all_selected.push(outputs.remove("selected").expect("it was bound by this name"));
        }
        Ok(all_selected)
    }
}

impl Decoder for Exported {
    fn admit(&mut self, sentences: &[&[u32]]) -> Result<Vec<u32>> {
        let longest = sentences.iter().map(|ids| ids.len()).max().unwrap_or(0);
        let pads: Vec<usize> = sentences.iter().map(|ids| longest - ids.len()).collect();
        let mut rows = self.selector.select(&self.prompt, &vec![0; sentences.len()])?;
        rows.pad_next(&pads);
        let mut tokens = Vec::with_capacity(sentences.len() * longest);
        for (ids, &pad) in sentences.iter().zip(&pads) {
            tokens.extend(std::iter::repeat_n(0, pad));
            tokens.extend(as_input(ids));
        }
        let next = self.extend(&mut rows, &tokens)?;
        self.rows = rows;
        self.live = (0..sentences.len()).collect();
        Ok(next)
    }

    fn step(&mut self, tokens: &[u32]) -> Result<Vec<u32>> {
        let mut rows = std::mem::take(&mut self.rows);
        let mut row_tokens = vec![0; rows.pads.len()];
        for (&row, &token) in self.live.iter().zip(tokens) {
            row_tokens[row] = i64::from(token);
        }
        let next = self.extend(&mut rows, &row_tokens)?;
        self.rows = rows;
        Ok(self.live.iter().map(|&row| next[row]).collect())
    }

    fn retain(&mut self, rows: &[usize]) -> Result<()> {
        self.live = rows.iter().map(|&row| self.live[row]).collect();
        // Removing rows costs a copy, like every step. It saves more once a quarter of them can go.
        if self.live.len() * 4 <= self.rows.pads.len() * 3 {
            self.rows = if self.live.is_empty() {
                ExportedRows::default()
            } else {
                self.selector.select(&self.rows, &self.live)?
            };
            self.live = (0..self.live.len()).collect();
        }
        Ok(())
    }

    /// False: all rows of a run have the same number of columns.
    fn admits_while_active(&self) -> bool {
        false
    }
}

impl ExportedRows {
    /// Marks the next `pads[n]` tokens of row `n` as padding.
    fn pad_next(&mut self, pads: &[usize]) {
        self.pads = pads.iter().map(|&pad| self.columns..self.columns + pad).collect();
    }

    /// Returns the attention mask, `[B, total]`: 0 for padding, 1 for tokens.
    fn mask(&self, total: usize) -> Vec<i64> {
        self.pads
            .iter()
            .flat_map(|pads| (0..total).map(|column| i64::from(!pads.contains(&column))))
            .collect()
    }

    /// Returns the positions of the new columns, `[B, total − columns]`. They count tokens without
    /// padding; the position of a padding column is arbitrary.
    fn positions(&self, total: usize) -> Vec<i64> {
        let mut positions = Vec::with_capacity(self.pads.len() * (total - self.columns));
        for pads in &self.pads {
            for column in self.columns..total {
                let is_after = column >= pads.end;
                let position = if is_after { column - pads.len() } else { column.min(pads.start) };
                positions.push(position as i64);
            }
        }
        positions
    }
}

#[cfg(test)]
mod tests {
    use corver_pretrained::read_tokenizer;
    use half::{bf16, f16};

    use super::*;
    use crate::onnx::tensor::first_of_rows;

    #[test]
    fn chunked_prompt_decodes_same_tokens() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/extract/exported");
        let tokenizer = read_tokenizer(&folder.join("tokenizer.json")).unwrap();
        let settings = ExtractorSettings::read(&folder.join("extractor.toml")).unwrap();
        let ids = |text| tokenizer.encode_fast(text, false).unwrap().get_ids().to_vec();
        let prompt = ids("The triplets of a sentence:\n");
        let tokens = tokenizer.get_vocab_size(true);
        let long = ids("Silent Brava was directed by Dora Fenn.\n");
        let short = ids("unknown\n");
        let runtime = RuntimeLibrary::find(None).unwrap();
        let graph = folder.join("model.onnx");
        let mut decoder =
            Exported::open(&graph, &settings, &prompt, tokens, None, &runtime).unwrap();
        let mut next = |max_logits| {
            decoder.max_logits = max_logits;
            let first = decoder.admit(&[&short, &long]).unwrap();
            let second = decoder.step(&first).unwrap();
            (decoder.rows.columns, first, second)
        };
        let whole = next(MAX_LOGITS);
        assert_eq!(next(1), whole);
        assert_eq!(next(8 * tokens), whole);
    }

    #[test]
    fn rows_are_selected_in_every_precision() {
        let runtime = RuntimeLibrary::find(None).unwrap();
        let shape = [3, 1, 1, 2];
        let numbers: Vec<f32> = (0..6).map(|n| n as f32).collect();
        let halves: Vec<f16> = numbers.iter().map(|&x| f16::from_f32(x)).collect();
        let brains: Vec<bf16> = numbers.iter().map(|&x| bf16::from_f32(x)).collect();
        let tensors = [
            (Float::F32, Tensor::from_array((shape, numbers)).unwrap().into_dyn()),
            (Float::F16, Tensor::from_array((shape, halves)).unwrap().into_dyn()),
            (Float::Bf16, Tensor::from_array((shape, brains)).unwrap().into_dyn()),
        ];
        for (float, tensor) in tensors {
            let mut selector = RowSelector::open(float, None, &runtime).unwrap();
            let rows = ExportedRows { past: vec![tensor], columns: 1, pads: vec![0..0; 3] };
            let selected = selector.select(&rows, &[2, 0, 2]).unwrap();
            // All rows of the result as f32.
            let got = first_of_rows(&selected.past[0]).unwrap();
            assert_eq!(got, [4.0, 5.0, 0.0, 1.0, 4.0, 5.0], "{float:?}");
        }
    }

    #[test]
    fn positions_skip_padding_columns() {
        let mut rows = ExportedRows { past: Vec::new(), columns: 3, pads: vec![0..0; 2] };
        rows.pad_next(&[2, 0]);
        assert_eq!(rows.mask(7), [1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
        assert_eq!(rows.positions(7), [3, 3, 3, 4, 3, 4, 5, 6]);
        rows.columns = 7;
        assert_eq!(rows.positions(8), [5, 7]);
    }
}

//! Rows in the form that Optimum exports: every row holds the prompt, and a step copies all that is
//! there.

use std::ops::Range;
use std::path::Path;

use crate::onnx::tensor::{argmax, copied, select_rows, zeros};
use crate::onnx::{
    AllocationDevice, DynValue, MemoryInfo, RunResult, RuntimeLibrary, Session, Tensor, session,
};
use corver_pretrained::PretrainedError;

use super::layout::Layout;
use super::{Decoder, as_input, run_error};
use crate::extract::settings::Settings;
use crate::extract::{ExtractError, Result};

/// A `text-generation-with-past` graph.
pub(crate) struct Exported {
    session: Session,
    layout: Layout,
    gpu: Option<u16>,
    /// V.
    vocab_size: usize,
    max_logits: usize,
    /// The prompt, one row.
    prompt: Rows,
    rows: Rows,
    /// Those of `rows` that are still wanted.
    live: Vec<usize>,
}

/// Rows of tokens that have been run, as keys and values.
#[derive(Default)]
struct Rows {
    /// Key and value of each layer, `[B, heads, columns, dim]`; on the device, or on the CPU on
    /// their way there.
    past: Vec<DynValue>,
    columns: usize,
    /// Per row, the columns that hold padding.
    pads: Vec<Range<usize>>,
}

/// Logits of one run, at most: wide prompts over large vocabularies are run in pieces. 256 MiB of
/// f32.
const MAX_LOGITS: usize = 1 << 26;

impl Exported {
    /// Loads `graph` and runs `prompt`; `tokens` is the size of the tokenizer's vocabulary.
    pub(crate) fn open(
        graph: &Path,
        settings: &Settings,
        prompt: &[u32],
        tokens: usize,
        gpu: Option<u16>,
        runtime: &RuntimeLibrary,
    ) -> Result<Self> {
        let session = session::open(graph, gpu, runtime)?;
        let layout = Layout::read(&session, settings, graph)?;
        let vocab_size = layout.vocab_size.unwrap_or(tokens);
        if vocab_size < tokens {
            let expected = format!("logits for the {tokens} tokens of tokenizer.json");
            return Err(PretrainedError::malformed(graph, expected, vocab_size).into());
        }
        let mut decoder = Self {
            session,
            layout,
            gpu,
            vocab_size,
            max_logits: MAX_LOGITS,
            prompt: Rows::default(),
            rows: Rows::default(),
            live: Vec::new(),
        };
        let mut rows = decoder.blank()?;
        if !prompt.is_empty() {
            decoder.extend(&mut rows, &as_input(prompt).collect::<Vec<_>>())?;
        }
        decoder.prompt = rows;
        Ok(decoder)
    }

    /// One row without a token.
    fn blank(&self) -> Result<Rows> {
        let shape = [1, self.layout.num_kv_heads, 0, self.layout.head_dim];
        let past = (0..2 * self.layout.layers.len()).map(|_| zeros(self.layout.kv_type, &shape));
        let past = past.collect::<RunResult<_>>().map_err(|source| run_error(1, 0, source))?;
        Ok(Rows { past, columns: 0, pads: std::iter::once(0..0).collect() })
    }

    /// Runs further tokens of each row, `[B, width]` row by row, and returns the most likely next
    /// token of each.
    fn extend(&mut self, rows: &mut Rows, tokens: &[i64]) -> Result<Vec<u32>> {
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

    /// One run of the graph; `rows` grows by the new columns, the logits `[B, T, V]` come to the
    /// CPU.
    fn run(&mut self, rows: &mut Rows, tokens: Vec<i64>) -> RunResult<DynValue> {
        let num_rows = rows.pads.len();
        let width = tokens.len() / num_rows;
        let total = rows.columns + width;
        let shape = |columns: usize| [num_rows, columns];
        let mut binding = self.session.create_binding()?;
        binding.bind_input("input_ids", &Tensor::from_array((shape(width), tokens))?)?;
        binding
            .bind_input("attention_mask", &Tensor::from_array((shape(total), rows.mask(total)))?)?;
        binding.bind_input(
            "position_ids",
            &Tensor::from_array((shape(width), rows.positions(total)))?,
        )?;
        binding.bind_output_to_device("logits", &MemoryInfo::default())?;
        let home = session::home(self.gpu)?;
        for ([past_key, past_value, present_key, present_value], past) in
            self.layout.layers.iter().zip(rows.past.chunks_exact(2))
        {
            binding.bind_input(past_key, &past[0])?;
            binding.bind_input(past_value, &past[1])?;
            binding.bind_output_to_device(present_key, &home)?;
            binding.bind_output_to_device(present_value, &home)?;
        }
        let mut outputs = self.session.run_binding(&binding)?;
        let mut take =
            |name: &str| outputs.remove(name).expect("every output was bound by this name");
        rows.past = self
            .layout
            .layers
            .iter()
            .flat_map(|names| [take(&names[2]), take(&names[3])])
            .collect();
        rows.columns = total;
        Ok(take("logits"))
    }

    /// Rows `which` of `rows`, in that order; one row may be taken several times.
    fn select(&self, rows: &Rows, which: &[usize]) -> Result<Rows> {
        let select = |value: &DynValue| match self.gpu {
            None => select_rows(value, self.layout.kv_type, which),
            // Rows leave a batch seldom; the copy there and back is worth what it saves in every
            // later step.
            Some(_) => {
                select_rows(&copied(value, AllocationDevice::CPU, 0)?, self.layout.kv_type, which)
            }
        };
        let past = rows.past.iter().map(select).collect::<RunResult<_>>();
        Ok(Rows {
            past: past.map_err(|source| run_error(which.len(), rows.columns, source))?,
            columns: rows.columns,
            pads: which.iter().map(|&row| rows.pads[row].clone()).collect(),
        })
    }
}

impl Decoder for Exported {
    fn enter(&mut self, sentences: &[&[u32]]) -> Result<Vec<u32>> {
        let longest = sentences.iter().map(|ids| ids.len()).max().unwrap_or(0);
        let pads: Vec<usize> = sentences.iter().map(|ids| longest - ids.len()).collect();
        let mut rows = self.select(&self.prompt, &vec![0; sentences.len()])?;
        rows.pad_next(&pads);
        let padded = |(ids, pad): (&&[u32], &usize)| {
            std::iter::repeat_n(0, *pad).chain(as_input(ids)).collect::<Vec<_>>()
        };
        let tokens: Vec<i64> = sentences.iter().zip(&pads).flat_map(padded).collect();
        let next = self.extend(&mut rows, &tokens)?;
        self.rows = rows;
        self.live = (0..sentences.len()).collect();
        Ok(next)
    }

    fn step(&mut self, tokens: &[u32]) -> Result<Vec<u32>> {
        let mut rows = std::mem::take(&mut self.rows);
        let mut all = vec![0; rows.pads.len()];
        self.live.iter().zip(tokens).for_each(|(&row, &token)| all[row] = i64::from(token));
        let next = self.extend(&mut rows, &all)?;
        self.rows = rows;
        Ok(self.live.iter().map(|&row| next[row]).collect())
    }

    fn keep(&mut self, rows: &[usize]) -> Result<()> {
        self.live = rows.iter().map(|&row| self.live[row]).collect();
        // Dropping rows copies what is there, as every step does; it pays from about a quarter of
        // them on.
        if self.live.len() * 4 <= self.rows.pads.len() * 3 {
            self.rows = match self.live.is_empty() {
                true => Rows::default(),
                false => self.select(&self.rows, &self.live)?,
            };
            self.live = (0..self.live.len()).collect();
        }
        Ok(())
    }

    /// Rows of one run have equally many columns.
    fn takes_more(&self) -> bool {
        false
    }
}

impl Rows {
    /// Says that row `n`'s next `pads[n]` tokens are padding.
    fn pad_next(&mut self, pads: &[usize]) {
        self.pads = pads.iter().map(|&pad| self.columns..self.columns + pad).collect();
    }

    /// `[B, total]`
    fn mask(&self, total: usize) -> Vec<i64> {
        self.pads
            .iter()
            .flat_map(|pads| (0..total).map(|column| i64::from(!pads.contains(&column))))
            .collect()
    }

    /// `[B, total − columns]`: positions count real tokens; what a padding has does not matter.
    fn positions(&self, total: usize) -> Vec<i64> {
        let position = |pads: &Range<usize>, column: usize| match column {
            _ if column >= pads.end => (column - pads.len()) as i64,
            _ => column.min(pads.start) as i64,
        };
        self.pads
            .iter()
            .flat_map(|pads| (self.columns..total).map(move |column| position(pads, column)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use corver_pretrained::read_tokenizer;

    use super::*;

    #[test]
    fn chunked_prompt_decodes_same_tokens() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/extract/exported");
        let tokenizer = read_tokenizer(&folder.join("tokenizer.json")).unwrap();
        let settings = Settings::read(&folder.join("extractor.toml")).unwrap();
        let ids = |text| tokenizer.encode_fast(text, false).unwrap().get_ids().to_vec();
        let (prompt, tokens) =
            (ids("The triplets of a sentence:\n"), tokenizer.get_vocab_size(true));
        let (long, short) = (ids("Silent Brava was directed by Dora Fenn.\n"), ids("unknown\n"));
        let runtime = RuntimeLibrary::find(None).unwrap();
        let graph = folder.join("model.onnx");
        let mut decoder =
            Exported::open(&graph, &settings, &prompt, tokens, None, &runtime).unwrap();
        let mut next = |max_logits| {
            decoder.max_logits = max_logits;
            let first = decoder.enter(&[&short, &long]).unwrap();
            let second = decoder.step(&first).unwrap();
            (decoder.rows.columns, first, second)
        };
        let whole = next(MAX_LOGITS);
        assert_eq!(next(1), whole);
        assert_eq!(next(8 * tokens), whole);
    }

    #[test]
    fn positions_skip_padding_columns() {
        let mut rows = Rows { past: Vec::new(), columns: 3, pads: vec![0..0; 2] };
        rows.pad_next(&[2, 0]);
        assert_eq!(rows.mask(7), [1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
        assert_eq!(rows.positions(7), [3, 3, 3, 4, 3, 4, 5, 6]);
        rows.columns = 7;
        assert_eq!(rows.positions(8), [5, 7]);
    }
}

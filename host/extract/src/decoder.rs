//! One graph and the state of the rows that it is decoding.

use std::ops::Range;

use ort::ep;
use ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};
use ort::session::Session;
use ort::value::{DynTensorValueType, DynValue, Tensor};

use crate::bundle::Bundle;
use crate::layout::Layout;
use crate::tensor::{argmax_of_last, empty, select_rows};
use crate::{Device, ExtractError, Result, RuntimeLibrary};

/// A decoder graph in an ONNX Runtime session.
pub(crate) struct Decoder {
    session: Session,
    layout: Layout,
    device: Device,
    /// V.
    vocab_size: usize,
    max_logits: usize,
}

/// Rows of tokens that have been run, as keys and values.
pub(crate) struct Rows {
    /// Key and value of each layer, `[B, heads, columns, dim]`; on the device, or on the CPU on their way there.
    past: Vec<DynValue>,
    columns: usize,
    /// Per row, the columns that hold padding.
    pads: Vec<Range<usize>>,
}

/// Logits of one run, at most: wide prompts over large vocabularies are run in pieces. 256 MiB of f32.
const MAX_LOGITS: usize = 1 << 26;

impl Decoder {
    pub(crate) fn open(bundle: &Bundle, device: Device, runtime: &RuntimeLibrary) -> Result<Self> {
        let session = open_session(bundle, device, runtime)?;
        let layout = Layout::read(&session, &bundle.settings, &bundle.graph)?;
        let tokens = bundle.tokenizer.get_vocab_size(true);
        let vocab_size = layout.vocab_size.unwrap_or(tokens);
        if vocab_size < tokens {
            return Err(ExtractError::Malformed {
                path: bundle.graph.clone(),
                expected: format!("logits for the {tokens} tokens of tokenizer.json"),
                got: format!("{vocab_size}"),
            });
        }
        Ok(Self { session, layout, device, vocab_size, max_logits: MAX_LOGITS })
    }

    /// One row without a token.
    pub(crate) fn blank(&self) -> Result<Rows> {
        let shape = [1, self.layout.num_kv_heads, 0, self.layout.head_dim];
        let past = (0..2 * self.layout.layers.len()).map(|_| empty(self.layout.kv_type, shape));
        let past = past.collect::<ort::Result<_>>().map_err(|source| run_error(1, 0, source))?;
        Ok(Rows { past, columns: 0, pads: std::iter::once(0..0).collect() })
    }

    /// Runs further tokens of each row, `[B, width]` row by row, and returns the most likely next token of each.
    pub(crate) fn extend(&mut self, rows: &mut Rows, tokens: &[i64]) -> Result<Vec<u32>> {
        let num_rows = rows.pads.len();
        let width = tokens.len() / num_rows;
        let piece = (self.max_logits / (num_rows * self.vocab_size)).clamp(1, width);
        let mut logits = None;
        for start in (0..width).step_by(piece) {
            let end = (start + piece).min(width);
            let columns: Vec<i64> =
                tokens.chunks_exact(width).flat_map(|row| row[start..end].iter().copied()).collect();
            logits = Some(self.run(rows, columns).map_err(|source| run_error(num_rows, rows.columns, source))?);
        }
        let logits = logits.expect("a row has at least one further token");
        argmax_of_last(&logits)
            .map_err(|source| run_error(num_rows, rows.columns, source))?
            .ok_or(ExtractError::NotFinite { columns: rows.columns })
    }

    /// One run of the graph; `rows` grows by the new columns, the logits `[B, T, V]` come to the CPU.
    fn run(&mut self, rows: &mut Rows, tokens: Vec<i64>) -> ort::Result<DynValue> {
        let num_rows = rows.pads.len();
        let width = tokens.len() / num_rows;
        let total = rows.columns + width;
        let shape = |columns: usize| [num_rows, columns];
        let mut binding = self.session.create_binding()?;
        binding.bind_input("input_ids", &Tensor::from_array((shape(width), tokens))?)?;
        binding.bind_input("attention_mask", &Tensor::from_array((shape(total), rows.mask(total)))?)?;
        binding.bind_input("position_ids", &Tensor::from_array((shape(width), rows.positions(total)))?)?;
        binding.bind_output_to_device("logits", &MemoryInfo::default())?;
        let home = home(self.device)?;
        for ([past_key, past_value, present_key, present_value], past) in
            self.layout.layers.iter().zip(rows.past.chunks_exact(2))
        {
            binding.bind_input(past_key, &past[0])?;
            binding.bind_input(past_value, &past[1])?;
            binding.bind_output_to_device(present_key, &home)?;
            binding.bind_output_to_device(present_value, &home)?;
        }
        let mut outputs = self.session.run_binding(&binding)?;
        let mut take = |name: &str| outputs.remove(name).expect("every output was bound by this name");
        rows.past = self.layout.layers.iter().flat_map(|names| [take(&names[2]), take(&names[3])]).collect();
        rows.columns = total;
        Ok(take("logits"))
    }

    /// Rows `which` of `rows`, in that order; one row may be taken several times.
    pub(crate) fn select(&self, rows: &Rows, which: &[usize]) -> Result<Rows> {
        let select = |value: &DynValue| match self.device {
            Device::Cpu => select_rows(value, self.layout.kv_type, which),
            // Rows leave a batch seldom; the copy there and back is worth what it saves in every later step.
            Device::Cuda(_) => {
                let tensor = value.view().downcast::<DynTensorValueType>()?;
                select_rows(&tensor.to(AllocationDevice::CPU, 0)?.into_dyn(), self.layout.kv_type, which)
            }
        };
        let past = rows.past.iter().map(select).collect::<ort::Result<_>>();
        Ok(Rows {
            past: past.map_err(|source| run_error(which.len(), rows.columns, source))?,
            columns: rows.columns,
            pads: which.iter().map(|&row| rows.pads[row].clone()).collect(),
        })
    }
}

impl Rows {
    /// Says that row `n`'s next `pads[n]` tokens are padding.
    pub(crate) fn pad_next(&mut self, pads: &[usize]) {
        self.pads = pads.iter().map(|&pad| self.columns..self.columns + pad).collect();
    }

    /// `[B, total]`
    fn mask(&self, total: usize) -> Vec<i64> {
        self.pads.iter().flat_map(|pads| (0..total).map(|column| i64::from(!pads.contains(&column)))).collect()
    }

    /// `[B, total − columns]`: positions count real tokens; what a padding has does not matter.
    fn positions(&self, total: usize) -> Vec<i64> {
        let position = |pads: &Range<usize>, column: usize| match column {
            _ if column >= pads.end => (column - pads.len()) as i64,
            _ => column.min(pads.start) as i64,
        };
        self.pads.iter().flat_map(|pads| (self.columns..total).map(move |column| position(pads, column))).collect()
    }
}

fn run_error(rows: usize, columns: usize, source: ort::Error) -> ExtractError {
    ExtractError::Run { rows, columns, source }
}

/// Where keys and values live between two runs.
fn home(device: Device) -> ort::Result<MemoryInfo<'static>> {
    match device {
        Device::Cpu => Ok(MemoryInfo::default()),
        Device::Cuda(number) => {
            MemoryInfo::new(AllocationDevice::CUDA, i32::from(number), AllocatorType::Device, MemoryType::Default)
        }
    }
}

fn open_session(bundle: &Bundle, device: Device, runtime: &RuntimeLibrary) -> Result<Session> {
    let environment = runtime.environment()?;
    let load = |source: ort::Error| ExtractError::Load { path: bundle.graph.clone(), source };
    // Idle threads that spin would take the cores from libtorch, which works in turn with this session.
    let mut builder =
        Session::builder(&environment).and_then(|builder| Ok(builder.with_intra_op_spinning(false)?)).map_err(load)?;
    if let Device::Cuda(number) = device {
        // Without `error_on_failure` the session would silently run on the CPU.
        let cuda = ep::CUDA::default().with_device_id(i32::from(number)).build().error_on_failure();
        builder = builder
            .with_execution_providers([cuda])
            .map_err(|error| ExtractError::NoCuda { device: device.to_string(), reason: error.to_string() })?;
    }
    builder.commit_from_file(&bundle.graph).map_err(load)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn demo() -> (Bundle, Decoder) {
        let bundle = Bundle::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../demo/assets/extractor")).unwrap();
        let decoder = Decoder::open(&bundle, Device::Cpu, &RuntimeLibrary::find(None).unwrap()).unwrap();
        (bundle, decoder)
    }

    fn ids(bundle: &Bundle, text: &str) -> Vec<i64> {
        bundle.encode_sentence(text).unwrap().unwrap().into_iter().map(i64::from).collect()
    }

    #[test]
    fn a_prompt_may_be_run_in_pieces() {
        let (bundle, mut decoder) = demo();
        let (long, short) = (ids(&bundle, "Silent Brava was directed by Dora Fenn."), ids(&bundle, "unknown"));
        let pad = long.len() - short.len();
        let tokens = [vec![0; pad], short, long].concat();
        let vocab_size = decoder.vocab_size;
        let mut next = |max_logits| {
            decoder.max_logits = max_logits;
            let blank = decoder.blank().unwrap();
            let mut rows = decoder.select(&blank, &[0, 0]).unwrap();
            rows.pad_next(&[pad, 0]);
            let first = decoder.extend(&mut rows, &tokens).unwrap();
            let second = decoder.extend(&mut rows, &[i64::from(first[0]), i64::from(first[1])]).unwrap();
            (rows.columns, first, second)
        };
        let whole = next(MAX_LOGITS);
        assert_eq!(next(1), whole);
        assert_eq!(next(8 * vocab_size), whole);
    }

    #[test]
    fn positions_count_what_is_real() {
        let mut rows = Rows { past: Vec::new(), columns: 3, pads: vec![0..0; 2] };
        rows.pad_next(&[2, 0]);
        assert_eq!(rows.mask(7), [1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
        assert_eq!(rows.positions(7), [3, 3, 3, 4, 3, 4, 5, 6]);
        rows.columns = 7;
        assert_eq!(rows.positions(8), [5, 7]);
    }
}

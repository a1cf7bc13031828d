//! Rows of tokens that one graph decodes together. `continued` runs the graph that this crate writes, `exported` one of Optimum's.

mod continued;
mod exported;
mod layout;
mod weights;

use ort::ep;
use ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};
use ort::session::Session;
use ort::session::builder::SessionBuilder;

pub(crate) use continued::Continued;
pub(crate) use exported::Exported;

use crate::{Device, ExtractError, Result, RuntimeLibrary};

/// Rows that are decoded greedily, in the order in which they came.
pub(crate) trait Decoder: Send {
    /// Adds rows behind those that are there: their tokens after the prompt. Returns the most likely next token of each.
    fn enter(&mut self, sentences: &[&[u32]]) -> Result<Vec<u32>>;

    /// Adds a token to every row, and returns the most likely next one of each.
    fn step(&mut self, tokens: &[u32]) -> Result<Vec<u32>>;

    /// Keeps the rows of these numbers, ascending; the others are gone.
    fn keep(&mut self, rows: &[usize]) -> Result<()>;

    /// Whether rows may enter while others are there.
    fn takes_more(&self) -> bool;
}

/// `gpu` is the number of an NVIDIA GPU; without, the processor computes.
fn builder(gpu: Option<u16>, runtime: &RuntimeLibrary) -> Result<SessionBuilder> {
    let environment = runtime.environment()?;
    let unusable = |source: ort::Error| ExtractError::RuntimeUnusable {
        path: runtime.path().to_owned(),
        reason: source.to_string(),
    };
    // Idle threads that spin would take the cores from libtorch, which works in turn with this session.
    let builder = Session::builder(&environment)
        .and_then(|builder| Ok(builder.with_intra_op_spinning(false)?))
        // Every step has other shapes, so a plan of the memory of one is kept for nothing.
        .and_then(|builder| Ok(builder.with_memory_pattern(false)?))
        .map_err(unusable)?;
    let Some(number) = gpu else { return Ok(builder) };
    // Without `error_on_failure` the session would silently run on the CPU.
    let cuda = ep::CUDA::default().with_device_id(i32::from(number)).build().error_on_failure();
    builder
        .with_execution_providers([cuda])
        .map_err(|error| ExtractError::NoCuda { device: Device::Cuda(number).to_string(), reason: error.to_string() })
}

/// Where keys and values live between two runs.
fn home(gpu: Option<u16>) -> ort::Result<MemoryInfo<'static>> {
    match gpu {
        None => Ok(MemoryInfo::default()),
        Some(number) => {
            MemoryInfo::new(AllocationDevice::CUDA, i32::from(number), AllocatorType::Device, MemoryType::Default)
        }
    }
}

fn as_input(ids: &[u32]) -> impl Iterator<Item = i64> + '_ {
    ids.iter().map(|&id| i64::from(id))
}

fn run_error(rows: usize, columns: usize, source: ort::Error) -> ExtractError {
    ExtractError::Run { rows, columns, source }
}

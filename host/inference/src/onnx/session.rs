//! Graphs that are loaded and ready to run. Everywhere, `gpu` is the number of an NVIDIA GPU;
//! without, the processor computes.

use std::path::Path;

use ort::ep;
use ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};
use ort::session::Session;
use ort::session::builder::SessionBuilder;

use crate::onnx::graph::Written;
use crate::onnx::{Device, OnnxError, Result, RuntimeLibrary, weights};

/// Loads an `.onnx` file.
///
/// # Errors
/// A library, device or graph that cannot be used.
pub fn open(graph: &Path, gpu: Option<u16>, runtime: &RuntimeLibrary) -> Result<Session> {
    builder(gpu, runtime)?
        .commit_from_file(graph)
        .map_err(|source| OnnxError::Load { path: graph.to_owned(), source })
}

/// Loads a graph that was written for the model in `folder`, with its weights from there.
///
/// # Errors
/// As [`open`]; and weights that cannot be read, are missing, or are of another shape or of a type
/// other than f32, bf16 and f16.
pub fn build(
    graph: &Written,
    folder: &Path,
    gpu: Option<u16>,
    runtime: &RuntimeLibrary,
) -> Result<Session> {
    let load = |source: ort::Error| OnnxError::Load { path: folder.to_owned(), source };
    let mut builder = builder(gpu, runtime)?;
    if !graph.outside.is_empty() {
        for (name, value) in weights::read(folder, &graph.outside, graph.float)? {
            builder = builder
                .with_external_initializer(name, value)
                .map_err(|error| load(error.into()))?;
        }
    }
    builder.commit_from_memory(&graph.bytes).map_err(load)
}

/// Where what a graph computes stays between two runs.
///
/// # Errors
/// A device that ONNX Runtime does not know.
pub fn home(gpu: Option<u16>) -> ort::Result<MemoryInfo<'static>> {
    match gpu {
        None => Ok(MemoryInfo::default()),
        Some(number) => MemoryInfo::new(
            AllocationDevice::CUDA,
            i32::from(number),
            AllocatorType::Device,
            MemoryType::Default,
        ),
    }
}

pub(crate) fn builder(gpu: Option<u16>, runtime: &RuntimeLibrary) -> Result<SessionBuilder> {
    let environment = runtime.environment()?;
    // Idle threads that spin would take the cores from libtorch, which works in turn with this
    // session.
    let builder = Session::builder(&environment)
        .and_then(|builder| Ok(builder.with_intra_op_spinning(false)?))
        // Every run has other shapes, so a plan of the memory of one is kept for nothing.
        .and_then(|builder| Ok(builder.with_memory_pattern(false)?))
        .map_err(|error: ort::Error| runtime.unusable(error))?;
    let Some(number) = gpu else { return Ok(builder) };
    // Without `error_on_failure` the session would silently run on the CPU.
    let cuda = ep::CUDA::default().with_device_id(i32::from(number)).build().error_on_failure();
    builder.with_execution_providers([cuda]).map_err(|error| OnnxError::NoCuda {
        device: Device::Cuda(number).to_string(),
        reason: error.to_string(),
    })
}

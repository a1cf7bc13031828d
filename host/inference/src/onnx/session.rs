//! Sessions: loaded graphs. In all functions `gpu` is the number of an NVIDIA GPU; `None` is the
//! processor.

use std::path::Path;

use ort::ep;
use ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};
use ort::session::Session;
use ort::session::builder::SessionBuilder;

use crate::onnx::graph::CompletedGraph;
use crate::onnx::{Device, OnnxError, Result, RuntimeLibrary, weights};

/// Loads an `.onnx` file.
///
/// # Errors
/// Fails if the library, device or graph cannot be used.
pub fn open(graph: &Path, gpu: Option<u16>, runtime: &RuntimeLibrary) -> Result<Session> {
    builder(gpu, runtime)?.commit_from_file(graph).map_err(|source| load_error(graph, source))
}

fn load_error(path: &Path, source: ort::Error) -> OnnxError {
    OnnxError::Load { path: path.to_owned(), source }
}

/// Loads a graph that this crate has written, with the weights in `folder`.
///
/// # Errors
/// Fails if the library, device or graph cannot be used. Fails if weights cannot be read, are
/// missing, have another shape, or have a type other than f32, bf16 and f16.
pub fn build(
    graph: &CompletedGraph,
    folder: &Path,
    gpu: Option<u16>,
    runtime: &RuntimeLibrary,
) -> Result<Session> {
    let mut builder = builder(gpu, runtime)?;
    if !graph.external_weights.is_empty() {
        for (name, value) in weights::read(folder, &graph.external_weights, graph.float)? {
            builder = builder
                .with_external_initializer(name, value)
                .map_err(|error| load_error(folder, error.into()))?;
        }
    }
    builder.commit_from_memory(&graph.bytes).map_err(|source| load_error(folder, source))
}

/// Returns the memory in which outputs stay between two runs.
///
/// # Errors
/// Fails if ONNX Runtime does not know the device.
pub fn output_memory(gpu: Option<u16>) -> ort::Result<MemoryInfo<'static>> {
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
    // Threads that spin while idle would take the cores from libtorch, which alternates with this
    // session.
    let builder = Session::builder(&environment)
        .and_then(|builder| Ok(builder.with_intra_op_spinning(false)?))
        // A memory plan is for fixed shapes, and every run has other ones.
        .and_then(|builder| Ok(builder.with_memory_pattern(false)?))
        .map_err(|error: ort::Error| runtime.unusable(error))?;
    let Some(number) = gpu else { return Ok(builder) };
    if !runtime.has_cuda()? {
        return Err(OnnxError::CpuBuild {
            device: Device::Cuda(number).to_string(),
            library: runtime.path().to_owned(),
        });
    }
    runtime.preload_cuda();
    // Without `error_on_failure`, the session would silently run on the CPU.
    let cuda = ep::CUDA::default().with_device_id(i32::from(number)).build().error_on_failure();
    builder.with_execution_providers([cuda]).map_err(|error| OnnxError::NoCuda {
        device: Device::Cuda(number).to_string(),
        reason: error.to_string(),
    })
}

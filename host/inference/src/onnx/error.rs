//! Errors of ONNX Runtime.

use std::path::PathBuf;

use corver_pretrained::PretrainedError;

/// A failure to load ONNX Runtime, a graph or its weights.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OnnxError {
    /// A shared library that cannot be found or used, or is not the one that the process has
    /// loaded.
    #[error("{0}")]
    Runtime(String),
    /// A GPU, and an ONNX Runtime that is built for the CPU alone.
    #[error(
        "device `{device}` is not available: ONNX Runtime at {library} has no CUDA (CPU-only \
         build); run `make setup` on the GPU machine, set ORT_DYLIB_PATH to a build for CUDA, or \
         use the device cpu"
    )]
    CpuBuild {
        /// Device as configured: `cuda:0`, …
        device: String,
        /// Path of the library.
        library: PathBuf,
    },
    /// A GPU that an ONNX Runtime for CUDA cannot use.
    #[error(
        "device `{device}` is not available to ONNX Runtime: {reason}. CUDA 13 needs driver 580 or \
         newer, which has libcuda.so.1; NVIDIA's other libraries come from `nvidia/` beside ONNX \
         Runtime or from LD_LIBRARY_PATH. Or use the device cpu"
    )]
    NoCuda {
        /// Device as configured: `cuda:0`, …
        device: String,
        /// Reason of ONNX Runtime.
        reason: String,
    },
    /// A model's folder that cannot be used.
    #[error(transparent)]
    Pretrained(#[from] PretrainedError),
    /// A graph that ONNX Runtime rejects.
    #[error("{path}: ONNX Runtime cannot load this graph: {source}")]
    Load {
        /// Path of the graph, or of the model's folder if this crate has written the graph.
        path: PathBuf,
        /// Reason of ONNX Runtime.
        source: ort::Error,
    },
}

/// A result with an [`OnnxError`].
pub type Result<T> = std::result::Result<T, OnnxError>;

/// True if a run failed because memory was short. A smaller run may succeed.
#[must_use]
pub fn is_out_of_memory(error: &ort::Error) -> bool {
    let reason = error.to_string().to_lowercase();
    ["failed to allocate", "out of memory", "bad_alloc", "bad allocation", "alloc_failed"]
        .iter()
        .any(|words| reason.contains(words))
}

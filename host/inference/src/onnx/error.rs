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
    /// A GPU that this ONNX Runtime or machine does not have.
    #[error(
        "device `{device}` is not available to ONNX Runtime: {reason}. Use an ONNX Runtime built \
         for CUDA (set ORT_DYLIB_PATH), or the device cpu"
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
    ["failed to allocate", "out of memory", "bad_alloc", "bad allocation"]
        .iter()
        .any(|words| reason.contains(words))
}

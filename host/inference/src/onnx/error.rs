//! Errors with what the reader needs to mend them.

use std::path::PathBuf;

use corver_pretrained::PretrainedError;

/// Errors of ONNX Runtime and of what it is given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OnnxError {
    /// A shared library of ONNX Runtime that is nowhere, cannot be used, or is not the one that is
    /// loaded.
    #[error("{0}")]
    Runtime(String),
    /// A GPU that this ONNX Runtime or machine does not have.
    #[error(
        "device `{device}` is not available to ONNX Runtime: {reason}. Use an ONNX Runtime built for CUDA (set ORT_DYLIB_PATH), or the device cpu"
    )]
    NoCuda {
        /// Device as asked.
        device: String,
        /// Reason of ONNX Runtime.
        reason: String,
    },
    /// A model's folder that cannot be used.
    #[error(transparent)]
    Pretrained(#[from] PretrainedError),
    /// A graph that ONNX Runtime refuses.
    #[error("{path}: ONNX Runtime cannot load this graph: {source}")]
    Load {
        /// Path of the graph, or of the folder that it was written for.
        path: PathBuf,
        /// Reason of ONNX Runtime.
        source: ort::Error,
    },
}

/// Shorthand of this crate.
pub type Result<T> = std::result::Result<T, OnnxError>;

/// Whether a run failed for want of memory: a smaller one may do.
#[must_use]
pub fn is_out_of_memory(error: &ort::Error) -> bool {
    let reason = error.to_string().to_lowercase();
    ["failed to allocate", "out of memory", "bad_alloc", "bad allocation"]
        .iter()
        .any(|words| reason.contains(words))
}

//! What can go wrong in this crate, with what the reader needs to fix it.

use std::path::PathBuf;

use corver_pretrained::PretrainedError;

/// Errors of ONNX Runtime and of what it is given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OnnxError {
    /// ONNX Runtime's shared library is nowhere.
    #[error(
        "cannot find ONNX Runtime (libonnxruntime.so); searched {}. Run `make setup`, or set ORT_DYLIB_PATH to the library",
        join(searched)
    )]
    RuntimeNotFound {
        /// Every place that was looked at.
        searched: Vec<PathBuf>,
    },
    /// The library is there but cannot be used.
    #[error(
        "cannot use ONNX Runtime at {path}: {reason}. Run `make setup` for a version that works"
    )]
    RuntimeUnusable {
        /// The library.
        path: PathBuf,
        /// The loader's words.
        reason: String,
    },
    /// A process has one ONNX Runtime.
    #[error("ONNX Runtime is already loaded from {loaded}; {asked} cannot be loaded beside it")]
    RuntimeAlreadyLoaded {
        /// In use.
        loaded: PathBuf,
        /// Asked for.
        asked: PathBuf,
    },
    /// CUDA was asked for and this ONNX Runtime or machine has none.
    #[error(
        "device `{device}` is not available to ONNX Runtime: {reason}. Use an ONNX Runtime built for CUDA (set ORT_DYLIB_PATH), or the device cpu"
    )]
    NoCuda {
        /// As asked.
        device: String,
        /// ONNX Runtime's words.
        reason: String,
    },
    /// The model's folder.
    #[error(transparent)]
    Pretrained(#[from] PretrainedError),
    /// A weight is missing, of another shape, or of a type that is not read.
    #[error("{path}: tensor `{name}`: expected shape {expected:?}, got {got}")]
    Weight {
        /// The model's folder.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// As the graph has it.
        expected: Vec<usize>,
        /// What is there.
        got: String,
    },
    /// ONNX Runtime refuses the graph.
    #[error("{path}: ONNX Runtime cannot load this graph: {source}")]
    Load {
        /// The graph, or the folder that it was written for.
        path: PathBuf,
        /// ONNX Runtime's reason.
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

fn join(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

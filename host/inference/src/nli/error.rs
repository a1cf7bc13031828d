//! Errors of natural language inference.

use crate::onnx::{OnnxError, RunError};
use corver_core::InvalidSetting;
use corver_pretrained::PretrainedError;

/// A failure to open or run an NLI model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NliError {
    /// A setting with an invalid value.
    #[error(transparent)]
    Setting(#[from] InvalidSetting),
    /// A model's folder, or a text, that cannot be used.
    #[error(transparent)]
    Pretrained(#[from] PretrainedError),
    /// ONNX Runtime or a graph that cannot be used.
    #[error(transparent)]
    Onnx(#[from] OnnxError),
    /// A failed run of the graph.
    #[error("ONNX Runtime failed on {rows} pairs of {columns} tokens: {source}")]
    Run {
        /// Number of pairs of the batch.
        rows: usize,
        /// Number of tokens per pair, padding included.
        columns: usize,
        /// Reason of ONNX Runtime.
        source: RunError,
    },
    /// A run for which memory is short. Fewer tokens may succeed.
    #[error(
        "ONNX Runtime has not enough memory for {rows} pairs of {columns} tokens: {source}. Lower \
         backends.nli.max_batch_tokens"
    )]
    OutOfMemory {
        /// Number of pairs of the batch.
        rows: usize,
        /// Number of tokens per pair, padding included.
        columns: usize,
        /// Reason of ONNX Runtime.
        source: RunError,
    },
    /// Logits that are NaN or infinite.
    #[error("the NLI model's scores are not finite: its weights are damaged")]
    NotFinite,
}

/// A result with an [`NliError`].
pub type Result<T> = std::result::Result<T, NliError>;

/// Returns the error of a model's folder that cannot be used.
pub(crate) fn invalid_model(problem: String) -> NliError {
    PretrainedError::InvalidModel(problem).into()
}

/// Returns the error of a failed run.
pub(crate) fn run_error(rows: usize, columns: usize, source: RunError) -> NliError {
    if crate::onnx::is_out_of_memory(&source) {
        NliError::OutOfMemory { rows, columns, source }
    } else {
        NliError::Run { rows, columns, source }
    }
}

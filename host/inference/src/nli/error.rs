//! Errors with what the reader needs to mend them.

use crate::onnx::{OnnxError, RunError};
use corver_core::InvalidSetting;
use corver_pretrained::PretrainedError;

/// Errors of natural language inference.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NliError {
    /// A setting with a value that makes no sense.
    #[error(transparent)]
    Setting(#[from] InvalidSetting),
    /// A model's folder, or a text, that cannot be used.
    #[error(transparent)]
    Pretrained(#[from] PretrainedError),
    /// ONNX Runtime or a graph that cannot be used.
    #[error(transparent)]
    Onnx(#[from] OnnxError),
    /// A run of the graph that failed.
    #[error(
        "ONNX Runtime failed on {rows} pairs of {columns} tokens: {source}. Where memory is short, lower verify.nli.max_batch_tokens"
    )]
    Run {
        /// Number of pairs of the batch.
        rows: usize,
        /// Number of tokens of each, padding included.
        columns: usize,
        /// Reason of ONNX Runtime.
        source: RunError,
    },
    /// A score that is no number.
    #[error("the NLI model's scores are not finite: its weights are damaged")]
    NotFinite,
}

/// Shorthand of this crate.
pub type Result<T> = std::result::Result<T, NliError>;

/// Returns the error of a model's folder that cannot be used.
pub(crate) fn invalid_model(problem: String) -> NliError {
    PretrainedError::InvalidModel(problem).into()
}

//! Errors of the extractor.

use std::sync::Arc;

use crate::onnx::{OnnxError, RunError};
use corver_pretrained::PretrainedError;

/// A failure to open or run an extractor.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExtractError {
    /// ONNX Runtime or a graph that cannot be used.
    #[error(transparent)]
    Onnx(#[from] OnnxError),
    /// A prompt that is missing, does not have exactly one slot for the sentence, leaves no tokens
    /// for it, or has variables but no chat template.
    #[error("{0}")]
    InvalidPrompt(String),
    /// A model's folder, or a text, that cannot be used.
    #[error(transparent)]
    Pretrained(#[from] PretrainedError),
    /// A failed run of the graph.
    #[error("ONNX Runtime failed on {rows} rows of {columns} tokens: {source}")]
    Run {
        /// Number of rows of the batch.
        rows: usize,
        /// Number of tokens per row so far.
        columns: usize,
        /// Reason of ONNX Runtime.
        source: RunError,
    },
    /// A run for which memory is short. Fewer rows may succeed.
    #[error(
        "ONNX Runtime has not enough memory for {rows} rows of {columns} tokens: {source}. Lower \
         extract.batch_size"
    )]
    OutOfMemory {
        /// Number of rows of the batch.
        rows: usize,
        /// Number of tokens per row so far.
        columns: usize,
        /// Reason of ONNX Runtime.
        source: RunError,
    },
    /// A thread that cannot be started, or has panicked.
    #[error("{0}")]
    Thread(String),
    /// An extractor that has failed before and no longer runs.
    #[error("the extractor has stopped: {0}")]
    Stopped(Arc<ExtractError>),
    /// Logits that are NaN or infinite.
    #[error(
        "the extractor's logits are not finite after {columns} tokens; use a model in f32 or bf16"
    )]
    NotFinite {
        /// Number of tokens per row so far.
        columns: usize,
    },
}

impl ExtractError {
    /// Returns the error of a defect of this program.
    pub(crate) fn panicked() -> Self {
        Self::Thread("the extractor's thread panicked; its message is above".to_owned())
    }
}

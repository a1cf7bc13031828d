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
    /// A prompt that is missing, does not have exactly one slot for the sentence, or leaves no
    /// tokens for it.
    #[error("{0}")]
    InvalidPrompt(String),
    /// A model's folder, or a text, that cannot be used.
    #[error(transparent)]
    Pretrained(#[from] PretrainedError),
    /// A failed run of the graph. If memory is short, fewer rows may succeed.
    #[error(
        "ONNX Runtime failed on {rows} rows of {columns} tokens: {source}. Where memory is short, \
         lower extract.batch_size"
    )]
    Run {
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

    /// True if a run with fewer rows may succeed.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Run { source, .. } if crate::onnx::is_out_of_memory(source))
    }
}

//! Errors with what the reader needs to mend them.

use std::sync::Arc;

use crate::onnx::{OnnxError, RunError};
use corver_pretrained::PretrainedError;

/// Errors of the extractor.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExtractError {
    /// ONNX Runtime or a graph that cannot be used.
    #[error(transparent)]
    Onnx(#[from] OnnxError),
    /// A prompt that is missing, has not one place for the sentence, or leaves no room for it.
    #[error("{0}")]
    InvalidPrompt(String),
    /// A model's folder, or a text, that cannot be used.
    #[error(transparent)]
    Pretrained(#[from] PretrainedError),
    /// A run of the graph that failed.
    #[error(
        "ONNX Runtime failed on {rows} rows of {columns} tokens: {source}. Where memory is short, lower extract.batch_size"
    )]
    Run {
        /// Number of rows of the batch.
        rows: usize,
        /// Number of tokens per row so far.
        columns: usize,
        /// Reason of ONNX Runtime.
        source: RunError,
    },
    /// A thread that cannot be started.
    #[error("cannot start the extractor's thread: {source}")]
    Thread {
        /// Error of the system.
        source: std::io::Error,
    },
    /// An extractor that failed before, and runs no more.
    #[error("the extractor has stopped: {0}")]
    Stopped(Arc<ExtractError>),
    /// A defect of this program.
    #[error("the extractor's thread panicked; its message is above")]
    Panicked,
    /// Scores that are no numbers.
    #[error(
        "the extractor's logits are not finite after {columns} tokens; use a model in f32 or bf16"
    )]
    NotFinite {
        /// Number of tokens per row so far.
        columns: usize,
    },
}

impl ExtractError {
    /// Fewer rows may do.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Run { source, .. } if crate::onnx::is_out_of_memory(source))
    }
}

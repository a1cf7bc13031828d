//! What can go wrong in this crate, with what the reader needs to fix it.

use std::path::PathBuf;
use std::sync::Arc;

use corver_onnx::{OnnxError, RunError};
use corver_pretrained::{Family, PretrainedError};

/// Errors of the extractor.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExtractError {
    /// ONNX Runtime, or what it is given.
    #[error(transparent)]
    Onnx(#[from] OnnxError),
    /// The folder holds no model.
    #[error(
        "{folder}: no model here. An extractor is a Hugging Face folder (config.json, model.safetensors, tokenizer.json), or one with model.onnx, \
         tokenizer.json and extractor.toml"
    )]
    NoModel {
        /// As given.
        folder: PathBuf,
    },
    /// Nothing says how sentences are put to the model.
    #[error(
        "the extractor {folder} has no prompt: set extract.prompt to a file with the instructions and {{sentence}} where the sentence goes, \
         or prompt_prefix in its extractor.toml"
    )]
    NoPrompt {
        /// The extractor.
        folder: PathBuf,
    },
    /// A prompt without one place for the sentence.
    #[error("the extractor's prompt has {places} places {{sentence}}; it needs one")]
    Place {
        /// In the prompt, or in what the chat template makes of it.
        places: usize,
    },
    /// No sentence fits behind the prompt.
    #[error("the extractor's prompt has {tokens} tokens, and its model has {positions} positions")]
    PromptTooLong {
        /// Tokens that stand before every sentence.
        tokens: usize,
        /// `max_position_embeddings` of config.json.
        positions: usize,
    },
    /// The model's folder.
    #[error(transparent)]
    Pretrained(#[from] PretrainedError),
    /// An architecture that no graph is written for.
    #[error(
        "{path}: an extractor of the family {got:?} is not supported; Llama and Qwen2 are, or a graph that Optimum exported"
    )]
    Family {
        /// config.json.
        path: PathBuf,
        /// What it is.
        got: Family,
    },
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file of the extractor is there but does not hold what it should.
    #[error("{path}: expected {expected}, got {got}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        expected: String,
        /// What it holds.
        got: String,
    },
    /// The tokenizer refused a sentence.
    #[error("the tokenizer cannot encode {sentence:?}: {reason}")]
    Tokenize {
        /// The sentence, or the ids where decoding failed.
        sentence: String,
        /// The library's words.
        reason: String,
    },
    /// Running the graph failed.
    #[error(
        "ONNX Runtime failed on {rows} rows of {columns} tokens: {source}. Where memory is short, lower extract.batch_size"
    )]
    Run {
        /// Rows of the batch.
        rows: usize,
        /// Tokens per row so far.
        columns: usize,
        /// ONNX Runtime's reason.
        source: RunError,
    },
    /// The extractor's thread cannot be started.
    #[error("cannot start the extractor's thread: {source}")]
    Thread {
        /// The system's reason.
        source: std::io::Error,
    },
    /// The extractor failed before, and runs no more.
    #[error("the extractor has stopped: {0}")]
    Stopped(Arc<ExtractError>),
    /// A defect of this program.
    #[error("the extractor's thread panicked; its message is above")]
    Panicked,
    /// The model's scores are no numbers.
    #[error(
        "the extractor's logits are not finite after {columns} tokens; use a model in f32 or bf16"
    )]
    NotFinite {
        /// Tokens per row so far.
        columns: usize,
    },
}

impl ExtractError {
    /// Fewer rows may do.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Run { source, .. } if corver_onnx::is_out_of_memory(source))
    }
}

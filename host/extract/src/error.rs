//! What can go wrong in this crate, with what the reader needs to fix it.

use std::path::PathBuf;
use std::sync::Arc;

use corver_pretrained::{Family, PretrainedError};

/// Errors of the extractor.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExtractError {
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
    #[error("cannot use ONNX Runtime at {path}: {reason}. Run `make setup` for a version that works")]
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
    /// The device string is none of the known forms.
    #[error("extractor device `{got}` is not one of auto, cpu, cuda, cuda:N")]
    UnknownDevice {
        /// The string.
        got: String,
    },
    /// CUDA was asked for and this ONNX Runtime or machine has none.
    #[error(
        "extractor device `{device}` is not available: {reason}. Use an ONNX Runtime built for CUDA (set ORT_DYLIB_PATH), or the device cpu"
    )]
    NoCuda {
        /// As asked.
        device: String,
        /// ONNX Runtime's words.
        reason: String,
    },
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
    /// A weight is missing, of another shape, or of a type that is not read.
    #[error("{path}: tensor `{name}`: expected shape {expected:?}, got {got}")]
    Weight {
        /// The model's folder.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// As config.json has it.
        expected: Vec<usize>,
        /// What is there.
        got: String,
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
    /// ONNX Runtime refuses the graph.
    #[error("{path}: ONNX Runtime cannot load this graph: {source}")]
    Load {
        /// The graph.
        path: PathBuf,
        /// ONNX Runtime's reason.
        source: ort::Error,
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
        source: ort::Error,
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
    #[error("the extractor's logits are not finite after {columns} tokens; use a model in f32 or bf16")]
    NotFinite {
        /// Tokens per row so far.
        columns: usize,
    },
}

impl ExtractError {
    /// Fewer rows may do.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        let Self::Run { source, .. } = self else { return false };
        let reason = source.to_string().to_lowercase();
        ["failed to allocate", "out of memory", "bad_alloc", "bad allocation"]
            .iter()
            .any(|words| reason.contains(words))
    }
}

fn join(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

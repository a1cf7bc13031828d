//! What can go wrong in this crate, with what the reader needs to fix it.

use std::path::PathBuf;

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
    #[error("extractor device `{got}` is not one of cpu, cuda, cuda:N")]
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
    /// A file of the bundle cannot be read.
    #[error(
        "cannot read {path}: {source}. An extractor bundle is a folder with model.onnx, tokenizer.json and extractor.toml"
    )]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file of the bundle is there but does not hold what it should.
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
        "ONNX Runtime failed on {rows} rows of {columns} tokens: {source}. Where memory is short, lower batch_size in extractor.toml"
    )]
    Run {
        /// Rows of the batch.
        rows: usize,
        /// Tokens per row so far.
        columns: usize,
        /// ONNX Runtime's reason.
        source: ort::Error,
    },
    /// The model's scores are no numbers.
    #[error("the extractor's logits are not finite after {columns} tokens; export the model in f32 or bf16")]
    NotFinite {
        /// Tokens per row so far.
        columns: usize,
    },
}

fn join(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

//! What can go wrong in this crate, with what the reader needs to fix it.

use std::path::PathBuf;

use corver_core::InvalidSetting;
use corver_onnx::{OnnxError, RunError};
use corver_pretrained::PretrainedError;

/// Errors of natural language inference.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NliError {
    /// The folder holds no model.
    #[error(
        "{folder}: no NLI model here. It is a Hugging Face folder with config.json, tokenizer.json, and model.safetensors or model.onnx"
    )]
    NoModel {
        /// As given.
        folder: PathBuf,
    },
    /// The model is none of those that are known.
    #[error(
        "{path}: an NLI model of the architecture {got} is not supported; HHEMv2ForSequenceClassification \
         (vectara/hallucination_evaluation_model) and DebertaV2ForSequenceClassification \
         (such as MoritzLaurer/DeBERTa-v3-base-mnli-fever-anli) are"
    )]
    Architecture {
        /// config.json.
        path: PathBuf,
        /// What it names.
        got: String,
    },
    /// Nothing says which of the model's classes is which.
    #[error(
        "{path}: id2label names {got}; it has to name `entailment`, and may name `neutral` and `contradiction`"
    )]
    Labels {
        /// config.json.
        path: PathBuf,
        /// What it names.
        got: String,
    },
    /// The published folder of HHEM has no tokenizer.
    #[error(
        "{path} is missing. HHEM reads with the tokenizer of google/flan-t5-base: put its tokenizer.json there"
    )]
    NoTokenizer {
        /// Where it belongs.
        path: PathBuf,
    },
    /// No texts fit.
    #[error(
        "verify.nli.max_tokens is {max_tokens}, and {overhead} tokens stand around every pair of texts; raise it"
    )]
    NoRoom {
        /// The setting.
        max_tokens: usize,
        /// Of the prompt and of special tokens.
        overhead: usize,
    },
    /// A setting makes no sense.
    #[error(transparent)]
    Setting(#[from] InvalidSetting),
    /// The model's folder.
    #[error(transparent)]
    Pretrained(#[from] PretrainedError),
    /// ONNX Runtime, or what it is given.
    #[error(transparent)]
    Onnx(#[from] OnnxError),
    /// The tokenizer refused a pair.
    #[error("the tokenizer cannot encode {text:?}: {reason}")]
    Tokenize {
        /// Premise or prompt.
        text: String,
        /// The library's words.
        reason: String,
    },
    /// Running the graph failed.
    #[error(
        "ONNX Runtime failed on {rows} pairs of {columns} tokens: {source}. Where memory is short, lower verify.nli.max_batch_tokens"
    )]
    Run {
        /// Pairs of the batch.
        rows: usize,
        /// Tokens of each, padding included.
        columns: usize,
        /// ONNX Runtime's reason.
        source: RunError,
    },
    /// A score is no number.
    #[error("the NLI model's scores are not finite: its weights are damaged")]
    NotFinite,
}

/// Shorthand of this crate.
pub type Result<T> = std::result::Result<T, NliError>;

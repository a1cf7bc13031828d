//! What can be wrong with a folder, with what the reader needs to fix it.

use std::path::PathBuf;

use corver_core::InvalidSetting;

/// Errors of reading a model's folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PretrainedError {
    /// A file could not be read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file is there but does not hold what it should.
    #[error("{path}: expected {expected}, got {got}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        expected: String,
        /// What it holds.
        got: String,
    },
    /// `model_type` in config.json names an architecture that is not known here.
    #[error("{path}: model_type `{got}` is not supported; supported are {}", supported.join(", "))]
    UnknownModelType {
        /// config.json.
        path: PathBuf,
        /// The value there.
        got: String,
        /// The values that work.
        supported: &'static [&'static str],
    },
    /// config.json asks for a variation that nobody computes here.
    #[error("{path}: `{key}` is {got}; only {expected} is supported")]
    UnsupportedConfig {
        /// config.json.
        path: PathBuf,
        /// The key there.
        key: &'static str,
        /// Its value.
        got: String,
        /// What works.
        expected: &'static str,
    },
    /// A setting has a value that makes no sense.
    #[error(transparent)]
    Setting(#[from] InvalidSetting),
    /// A prompt is longer than the rollouts allow.
    #[error(
        "the prompt of {question:?} has {tokens} tokens; rollout.max_prompt_length is {most}. Raise it, shorten the system prompt, or set \
         rollout.long_prompts = \"cut\""
    )]
    LongPrompt {
        /// The question.
        question: String,
        /// Of the prompt.
        tokens: usize,
        /// The setting.
        most: usize,
    },
    /// The chat template cannot be rendered.
    #[error("{path}: the chat template failed: {reason}")]
    Template {
        /// The file that holds the template.
        path: PathBuf,
        /// What is wrong with it, in the template engine's words or ours.
        reason: String,
    },
    /// The tokenizer refused its input.
    #[error("tokenizer: {reason}")]
    Tokenizer {
        /// The library's words.
        reason: String,
    },
}

/// Shorthand of this crate.
pub type Result<T> = std::result::Result<T, PretrainedError>;

impl PretrainedError {
    /// For `map_err` on reading.
    pub(crate) fn io(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}

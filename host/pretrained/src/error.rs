//! Errors of this crate.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use corver_core::InvalidSetting;

/// An error of a folder of a model, an adapter or a checkpoint. Other crates that read or write such
/// folders use it too.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PretrainedError {
    /// A file or folder cannot be read or written.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// Verb of the failed call: "read", "write", …
        action: &'static str,
        /// File or folder of the call.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The content of a file is malformed, or a model is not supported.
    #[error("{0}")]
    InvalidModel(String),
    /// A setting is out of range.
    #[error(transparent)]
    Setting(#[from] InvalidSetting),
    /// The tokenizer refuses a text, or a prompt is too long.
    #[error("{0}")]
    InvalidInput(String),
}

/// A result with a [`PretrainedError`].
pub type Result<T> = std::result::Result<T, PretrainedError>;

impl PretrainedError {
    /// Returns a function for `map_err` on a call of the operating system.
    pub fn io(action: &'static str, path: &Path) -> impl Fn(std::io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }

    /// Returns the error of a malformed file.
    pub fn malformed(path: &Path, expected: impl Display, got: impl Display) -> Self {
        Self::InvalidModel(format!("{}: expected {expected}, got {got}", path.display()))
    }

    /// Returns the error of a configuration with a variation that is not supported.
    pub fn unsupported(path: &Path, key: &str, got: impl Display, expected: &str) -> Self {
        Self::InvalidModel(format!(
            "{}: `{key}` is {got}; only {expected} is supported",
            path.display()
        ))
    }

    /// Returns the error of a tensor that is missing, superfluous, or of the wrong shape or type.
    pub fn tensor(path: &Path, name: &str, expected: impl Display, got: impl Display) -> Self {
        Self::InvalidModel(format!(
            "{}: tensor `{name}`: expected {expected}, got {got}",
            path.display()
        ))
    }
}

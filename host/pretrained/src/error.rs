//! Errors with what the reader needs to mend the folder.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use corver_core::InvalidSetting;

/// Errors of reading a model's folder, or an adapter's. Crates that read one say the same.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PretrainedError {
    /// A file or folder that cannot be read or written.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// Verb of the call: "read", "write", …
        action: &'static str,
        /// Path of the file or folder.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// A file that does not hold what it should, or a model that is not computed here.
    #[error("{0}")]
    InvalidModel(String),
    /// A setting with a value that makes no sense.
    #[error(transparent)]
    Setting(#[from] InvalidSetting),
    /// A text that the tokenizer refuses, or a prompt that is too long.
    #[error("{0}")]
    InvalidInput(String),
}

/// Shorthand of this crate.
pub type Result<T> = std::result::Result<T, PretrainedError>;

impl PretrainedError {
    /// For `map_err` on system calls.
    pub fn io(action: &'static str, path: &Path) -> impl Fn(std::io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }

    /// Returns the error of a file that does not hold what it should.
    pub fn malformed(path: &Path, expected: impl Display, got: impl Display) -> Self {
        Self::InvalidModel(format!("{}: expected {expected}, got {got}", path.display()))
    }

    /// Returns the error of a configuration that asks for a variation that nobody computes here.
    pub fn unsupported(path: &Path, key: &str, got: impl Display, expected: &str) -> Self {
        let path = path.display();
        Self::InvalidModel(format!("{path}: `{key}` is {got}; only {expected} is supported"))
    }

    /// Returns the error of a tensor that is missing, superfluous, or of the wrong shape or type.
    pub fn tensor(path: &Path, name: &str, expected: impl Display, got: impl Display) -> Self {
        let path = path.display();
        Self::InvalidModel(format!("{path}: tensor `{name}`: expected {expected}, got {got}"))
    }
}

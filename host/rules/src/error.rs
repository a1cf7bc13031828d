//! Errors of rules, by who can act on them.

use std::io;
use std::path::PathBuf;

use corver_core::BoxError;

/// An error that prevents a rule from being loaded, or a batch from being scored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// The plugin file cannot be read.
    #[error("failed to read the plugin {path}")]
    Io {
        /// Path of the plugin file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file is not the one whose hash was given.
    #[error("{path} is another file: its BLAKE3 hash is {actual}, and {expected} was given", path = path.display())]
    OtherFile {
        /// Path of the plugin file.
        path: PathBuf,
        /// Hash that was given, hexadecimal.
        expected: String,
        /// Hash of the file, hexadecimal.
        actual: String,
    },
    /// The file is no usable rule. Its author or the user has to act.
    #[error("{0}")]
    InvalidPlugin(String),
    /// The plugin exceeds one of the [`Limits`](crate::Limits), or a limit is out of range.
    #[error("{0}")]
    LimitExceeded(String),
    /// The rule refuses its settings.
    #[error("plugin {plugin} {version} refuses its settings: {message}")]
    InvalidSettings {
        /// Name of the rule.
        plugin: String,
        /// Version of the rule.
        version: String,
        /// Message of the rule.
        message: String,
    },
    /// The rule trapped or broke the contract. Its author has to act.
    #[error("{0}")]
    Broken(String),
    /// A backend failed to answer the rule's requests.
    #[error("the requests of plugin {plugin} failed")]
    Backend {
        /// Name of the rule.
        plugin: String,
        /// Error of the backend.
        source: BoxError,
    },
    /// This machine cannot compile or run WebAssembly as configured.
    #[error("{0}")]
    Engine(String),
}

/// A breach of the contract. Its text continues "plugin NAME VERSION", and names a sentence by the
/// completion's index in the batch and its own in the completion, from 0.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fault {
    /// The rule exceeded a limit.
    Limit(String),
    /// The rule broke the contract in any other way.
    Contract(String),
}

/// A fault, with the messages that the instance had reported until then, such as a panic's text.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) fault: Fault,
    pub(crate) reports: Vec<String>,
}

impl Failure {
    /// Converts to the error that names the rule and ends with its reports.
    pub(crate) fn into_error(self, plugin: &str, version: &str) -> RuleError {
        let reports = match &self.reports[..] {
            [] => String::new(),
            reports => format!("; it reported: {}", reports.join(" | ")),
        };
        match self.fault {
            Fault::Limit(problem) => {
                RuleError::LimitExceeded(format!("plugin {plugin} {version} {problem}{reports}"))
            }
            Fault::Contract(problem) => {
                RuleError::Broken(format!("plugin {plugin} {version} {problem}{reports}"))
            }
        }
    }
}

//! Errors of rules, and who has to act.

use std::io;
use std::path::PathBuf;

use corver_core::BoxError;

/// Why a rule cannot be loaded, or why a batch has no verdicts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// A plugin file that cannot be read.
    #[error("cannot read the plugin {path}")]
    Io {
        /// Path of the plugin file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// A file that is no usable rule: its author, or who gave it, has to act.
    #[error("{0}")]
    InvalidPlugin(String),
    /// More than one of the [`Limits`](crate::Limits) allows, by the plugin or by the limit itself.
    #[error("{0}")]
    LimitExceeded(String),
    /// Settings that the rule refuses.
    #[error("plugin {plugin} {version} refuses its settings: {message}")]
    InvalidSettings {
        /// Name of the rule.
        plugin: String,
        /// Version of the rule.
        version: String,
        /// Message of the rule.
        message: String,
    },
    /// A rule that trapped or broke the contract: its author has to act.
    #[error("{0}")]
    Broken(String),
    /// A verifier that failed, not the rule.
    #[error("what plugin {plugin} asked could not be answered")]
    Unanswered {
        /// Name of the rule.
        plugin: String,
        /// Error of the verifier.
        source: BoxError,
    },
    /// A machine that cannot compile or run WebAssembly as configured.
    #[error("{0}")]
    Engine(String),
}

/// A breach of the contract by a rule. A sentence is named by the completion's place in the batch
/// and its own in the completion, both counted from 0.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fault {
    /// More than a limit allows.
    Limit(String),
    /// Any other breach of the contract.
    Contract(String),
}

impl Fault {
    /// Returns the error that names the rule and ends with its reports, a panic text for example.
    pub(crate) fn into_error(self, plugin: &str, version: &str, reports: &[String]) -> RuleError {
        let reports = match reports {
            [] => String::new(),
            reports => format!("; it reported: {}", reports.join(" | ")),
        };
        let message = |problem| format!("plugin {plugin} {version} {problem}{reports}");
        match self {
            Self::Limit(problem) => RuleError::LimitExceeded(message(problem)),
            Self::Contract(problem) => RuleError::Broken(message(problem)),
        }
    }
}

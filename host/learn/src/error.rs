//! Errors with what the reader needs to mend them.

use std::path::PathBuf;

use corver_core::InvalidSetting;
use corver_pretrained::PretrainedError;

/// Errors of the learner.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LearnError {
    /// A model's folder, an adapter or a checkpoint that cannot be read or written.
    #[error(transparent)]
    Pretrained(#[from] PretrainedError),
    /// A file of a checkpoint that is no longer what was written, or is gone, or was added.
    #[error("{path} is damaged: its checksum is not in {list}")]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Path of the list of checksums.
        list: PathBuf,
    },
    /// A device that is not there, or whose memory cannot hold what the settings ask for.
    #[error("{0}")]
    Device(String),
    /// A setting with a value that makes no sense.
    #[error(transparent)]
    Setting(#[from] InvalidSetting),
    /// Data of the caller that do not fit together.
    #[error("{what}: expected {expected}, got {got}")]
    Input {
        /// Name of the argument.
        what: &'static str,
        /// Values that are possible.
        expected: String,
        /// Value of the argument.
        got: String,
    },
    /// A loss or a gradient that is not finite; the weights are unchanged.
    #[error(
        "{what} is {got} at step {step}; the weights are unchanged. Lower the learning rate or inspect the advantages{}",
        batch.as_ref().map_or_else(String::new, |path| format!(" in {}", path.display()))
    )]
    NotFinite {
        /// “loss” or “gradient norm”.
        what: &'static str,
        /// Value that is not finite.
        got: f64,
        /// Number of optimiser steps done so far.
        step: usize,
        /// Path of the file that the rollouts and their advantages were written to.
        batch: Option<PathBuf>,
    },
    /// Logits that are no numbers.
    #[error(
        "the logits of a prompt's last token are NaN or infinite: the weights, the adapter or a setting of config.json is wrong"
    )]
    Logits,
    /// A sampling that its watcher broke off.
    #[error("stopped, as asked")]
    Stopped,
    /// A failure of libtorch.
    #[error("libtorch: {0}")]
    Torch(#[from] tch::TchError),
}

/// Shorthand of this crate.
pub type Result<T> = std::result::Result<T, LearnError>;

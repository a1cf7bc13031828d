//! What can go wrong in this crate, with what the reader needs to fix it.

use std::path::PathBuf;

use corver_core::{Device, InvalidSetting};
use corver_pretrained::PretrainedError;

/// Errors of the learner.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LearnError {
    /// The model's folder.
    #[error(transparent)]
    Pretrained(#[from] PretrainedError),
    /// A file could not be read or written.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// “read”, “write”, …
        action: &'static str,
        /// The file or folder.
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
    /// A file is no longer what was written, or is gone, or was added.
    #[error("{path} is damaged: its checksum is not in {list}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where its checksum is kept.
        list: PathBuf,
    },
    /// An adapter's configuration asks for a variation that this crate does not compute.
    #[error("{path}: `{key}` is {got}; only {expected} is supported")]
    UnsupportedConfig {
        /// adapter_config.json.
        path: PathBuf,
        /// The key there.
        key: &'static str,
        /// Its value.
        got: String,
        /// What works.
        expected: &'static str,
    },
    /// A weight is missing, superfluous or of the wrong shape.
    #[error("{path}: tensor `{name}`: expected {expected}, got {got}")]
    Weight {
        /// The model folder or adapter file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Shape or presence that the configuration asks for.
        expected: String,
        /// What is there.
        got: String,
    },
    /// A CUDA device was asked for and cannot be had.
    #[error("device `{device}` is not available: {missing}; {remedy}")]
    NoCuda {
        /// Which one.
        device: Device,
        /// What this machine lacks.
        missing: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// A setting has a value that makes no sense.
    #[error(transparent)]
    Setting(#[from] InvalidSetting),
    /// The caller's data do not fit together.
    #[error("{what}: expected {expected}, got {got}")]
    Input {
        /// Which argument.
        what: &'static str,
        /// What it should be.
        expected: String,
        /// What it is.
        got: String,
    },
    /// The loss or the gradient is not finite; the weights are unchanged.
    #[error(
        "{what} is {got} at step {step}; the weights are unchanged. Lower the learning rate or inspect the advantages{}",
        batch.as_ref().map_or_else(String::new, |path| format!(" in {}", path.display()))
    )]
    NotFinite {
        /// “loss” or “gradient norm”.
        what: &'static str,
        /// The value.
        got: f64,
        /// Optimiser steps done so far.
        step: usize,
        /// The file that the rollouts and their advantages were written to.
        batch: Option<PathBuf>,
    },
    /// The device's memory cannot hold what the settings ask for.
    #[error(
        "{what} takes {:.1} GiB and {:.1} GiB are to be had: {remedy}, or take a larger device", gib(*needs), gib(*budget)
    )]
    Memory {
        /// The phase.
        what: &'static str,
        /// Bytes.
        needs: u64,
        /// Bytes.
        budget: u64,
        /// What would make it fit.
        remedy: &'static str,
    },
    /// The model computes no numbers.
    #[error(
        "the logits of a prompt's last token are NaN or infinite: the weights, the adapter or a setting of config.json is wrong"
    )]
    Logits,
    /// Whoever watches the sampling broke it off.
    #[error("stopped, as asked")]
    Stopped,
    /// libtorch failed.
    #[error("libtorch: {0}")]
    Torch(#[from] tch::TchError),
}

/// Shorthand of this crate.
pub type Result<T> = std::result::Result<T, LearnError>;

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1u32 << 30)
}

impl LearnError {
    /// For `map_err` on system calls.
    pub(crate) fn io(
        action: &'static str,
        path: &std::path::Path,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

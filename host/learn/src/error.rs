//! Errors of this crate.

use std::path::PathBuf;

use corver_core::InvalidSetting;
use corver_pretrained::PretrainedError;

/// An error of a model, its training or its device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LearnError {
    /// A folder of a model, an adapter or a checkpoint cannot be read or written.
    #[error(transparent)]
    Pretrained(#[from] PretrainedError),
    /// A file of a checkpoint was changed, removed or added.
    #[error("{path} is damaged: its checksum is not in {list}")]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Path of the list of checksums.
        list: PathBuf,
    },
    /// A device is not available, or its memory is too small for the settings.
    #[error("{0}")]
    Device(String),
    /// A setting is out of range.
    #[error(transparent)]
    Setting(#[from] InvalidSetting),
    /// Arguments do not fit together.
    #[error("{what}: expected {expected}, got {got}")]
    Input {
        /// Name of the argument.
        what: &'static str,
        /// Description of the possible values.
        expected: String,
        /// The value of the caller.
        got: String,
    },
    /// A loss or a gradient is not finite; the weights are unchanged.
    #[error(
        "{what} is {got} at step {step}; the weights are unchanged. Lower the learning rate or \
         inspect the advantages{}",
        batch.as_ref().map_or_else(String::new, |path| format!(" in {}", path.display()))
    )]
    NotFinite {
        /// Name of the figure, such as “loss”.
        what: &'static str,
        /// NaN or an infinity.
        got: f64,
        /// Number of optimiser steps before the failure.
        step: usize,
        /// File with the rollouts and their advantages; `None` if it was not written.
        batch: Option<PathBuf>,
    },
    /// Logits are NaN or infinite.
    #[error(
        "the logits of a prompt's last token are NaN or infinite: the weights, the adapter or a \
         setting of config.json is wrong"
    )]
    Logits,
    /// The caller's watch stopped sampling.
    #[error("stopped by the caller")]
    Stopped,
    /// An operation of libtorch failed.
    #[error("libtorch: {0}")]
    Torch(#[from] tch::TchError),
}

impl LearnError {
    /// Returns true if libtorch found no memory. It reports this in its text alone.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        let Self::Torch(tch::TchError::Torch(text)) = self else { return false };
        // CUDA's allocator, cuBLAS, and the CPU's allocator.
        ["out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "you tried to allocate"]
            .iter()
            .any(|sign| text.contains(sign))
    }
}

/// A result with a [`LearnError`].
pub type Result<T> = std::result::Result<T, LearnError>;

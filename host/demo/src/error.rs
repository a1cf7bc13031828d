//! What can go wrong while the demo's assets are made or unpacked.

use std::io::Write;
use std::path::{Path, PathBuf};

/// Why the demo cannot be made or unpacked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemoError {
    /// A file or folder cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// Which one.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The tokenizer library refused.
    #[error("the demo tokenizer: {0}")]
    Tokenizer(#[from] tokenizers::Error),
    /// A trained tokenizer lacks a token it was told to have.
    #[error("the demo tokenizer has no token `{token}`")]
    NoToken {
        /// Which one.
        token: &'static str,
    },
    /// Only what the demo needs can be written as ONNX.
    #[error("only Qwen2-style decoders with plain rotary embeddings are exported to ONNX; got {got}")]
    NotExported {
        /// The architecture.
        got: String,
    },
    /// libtorch or the training loop failed.
    #[cfg(feature = "torch")]
    #[error("training the demo: {0}")]
    Learn(#[from] corver_learn::LearnError),
}

/// Writes a file under a temporary name, syncs and renames it, so that it is there whole or not at all; makes its folder.
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> Result<(), DemoError> {
    let failed = |source| DemoError::Write { path: path.to_owned(), source };
    // The process id keeps two programs that unpack at the same time out of each other's way.
    let temporary = path.with_added_extension(format!("{}.tmp", std::process::id()));
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let written = std::fs::File::create(&temporary).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(failed)?;
    std::fs::rename(&temporary, path).map_err(failed)
}

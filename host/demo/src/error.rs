//! What can go wrong with the demo.

use std::io::Write;
use std::path::{Path, PathBuf};

/// Why the demo cannot be used.
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
    /// Its world is to answer wrongly less often than never, or more often than always.
    #[error("a rate of errors is from 0 to 1, not {got}")]
    ErrorRate {
        /// What was asked for.
        got: f64,
    },
}

/// Writes a file under a temporary name, syncs and renames it, so that it is there whole or not at
/// all; makes its folder.
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

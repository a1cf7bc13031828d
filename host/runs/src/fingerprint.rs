//! Hashes of the settings and files that decide a run.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::folder::{RunDirError, io};

/// Returns the blake3 hash of a file, or of a folder's files with their names, in order of name;
/// hexadecimal.
///
/// # Errors
/// Fails if a file cannot be read.
pub fn fingerprint(path: &Path) -> Result<String, RunDirError> {
    let mut hasher = blake3::Hasher::new();
    if path.is_dir() {
        let entries = fs::read_dir(path).map_err(io("read", path))?;
        let mut files: Vec<PathBuf> = entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()
            .map_err(io("read", path))?;
        files.retain(|file| file.is_file());
        files.sort();
        for file in files {
            hasher.update(file.file_name().unwrap_or_default().as_encoded_bytes());
            hasher.update(fingerprint(&file)?.as_bytes());
        }
    } else {
        let file = File::open(path).map_err(io("read", path))?;
        hasher.update_reader(file).map_err(io("read", path))?;
    }
    Ok(hasher.finalize().to_hex().to_string())
}

/// Returns the blake3 hash of a text, hexadecimal.
#[must_use]
pub fn text_fingerprint(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

/// Returns the blake3 hash of a value's JSON, hexadecimal.
///
/// # Errors
/// Fails if the value cannot be written as JSON.
pub fn json_fingerprint(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(text_fingerprint(&serde_json::to_string(value)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_fingerprint_covers_names_and_contents() {
        let folder = tempfile::tempdir().unwrap();
        let of = || fingerprint(folder.path()).unwrap();
        fs::write(folder.path().join("a"), "1").unwrap();
        let before = of();
        fs::write(folder.path().join("a"), "2").unwrap();
        let changed = of();
        fs::write(folder.path().join("a"), "1").unwrap();
        assert!(before != changed && before == of());
        fs::rename(folder.path().join("a"), folder.path().join("b")).unwrap();
        assert_ne!(before, of());
    }
}

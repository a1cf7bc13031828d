//! The fingerprint of an index, cheap enough to compute at every start.

use std::path::Path;

use crate::{Error, MANIFEST, Result};

/// Returns the blake3 hash of an index folder, in hexadecimal.
///
/// The hash is that of the manifest, which holds the checksums of all files. Without a manifest it
/// is that of the files' names and sizes, because the files may be too large to read. A link counts
/// as the file that it leads to.
///
/// # Errors
/// Fails if the folder cannot be read.
pub fn fingerprint(dir: impl AsRef<Path>) -> Result<String> {
    let folder = dir.as_ref();
    let manifest = folder.join(MANIFEST);
    if manifest.is_file() {
        let content = std::fs::read(&manifest).map_err(Error::io("read", &manifest))?;
        return Ok(hash_manifest(&content));
    }
    let mut sizes = Vec::new();
    for result in std::fs::read_dir(folder).map_err(Error::io("list", folder))? {
        let entry = result.map_err(Error::io("list", folder))?;
        let path = entry.path();
        // `DirEntry::metadata` has the length of a link.
        let size = std::fs::metadata(&path).map_err(Error::io("read", &path))?.len();
        sizes.push(format!("{} {size}", entry.file_name().to_string_lossy()));
    }
    sizes.sort();
    Ok(blake3::hash(sizes.join("\n").as_bytes()).to_hex().to_string())
}

/// Returns the blake3 hash of a manifest's content, in hexadecimal.
pub(crate) fn hash_manifest(content: &[u8]) -> String {
    blake3::hash(content).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn fingerprint_without_manifest_uses_names_and_sizes() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let of = || fingerprint(folder.path()).unwrap();
        std::fs::write(file("table.0"), "12").unwrap();
        let before = of();
        std::fs::write(file("table.0"), "34").unwrap();
        assert_eq!(of(), before, "contents are not read");
        std::fs::write(file("table.0"), "345").unwrap();
        assert_ne!(of(), before);
        std::fs::write(file(MANIFEST), "{}").unwrap();
        assert_eq!(of(), blake3::hash(b"{}").to_hex().to_string());
        assert!(matches!(fingerprint(file("nothing")), Err(Error::Io { .. })));
    }

    /// A snapshot in the cache of Hugging Face's tools has links to files with hashes as names.
    #[test]
    fn linked_files_have_the_fingerprint_of_their_copies() {
        let blobs = tempfile::tempdir().unwrap();
        std::fs::write(blobs.path().join("a"), "12").unwrap();
        std::fs::write(blobs.path().join("b"), "345").unwrap();
        let snapshot = |blob: &str| {
            let folder = tempfile::tempdir().unwrap();
            symlink(blobs.path().join(blob), folder.path().join("table.0")).unwrap();
            fingerprint(folder.path()).unwrap()
        };
        let copy = tempfile::tempdir().unwrap();
        std::fs::write(copy.path().join("table.0"), "12").unwrap();
        assert_eq!(snapshot("a"), fingerprint(copy.path()).unwrap());
        assert_ne!(snapshot("a"), snapshot("b"));
    }
}

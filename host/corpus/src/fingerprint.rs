//! A name for what an index holds, cheap enough for every start.

use std::path::Path;

use crate::{Error, MANIFEST, Result};

/// The blake3 hash of an index folder, hexadecimal: of its manifest, which holds the checksums of
/// its files; or, where another program built the index, of its files' names and sizes, as the
/// files may be too large to read.
///
/// # Errors
/// Where the folder cannot be read.
pub fn fingerprint(dir: impl AsRef<Path>) -> Result<String> {
    let dir = dir.as_ref();
    let manifest = dir.join(MANIFEST);
    if manifest.is_file() {
        let content = std::fs::read(&manifest).map_err(Error::io("read", &manifest))?;
        return Ok(of_manifest(&content));
    }
    let mut sizes = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(Error::io("list", dir))? {
        let entry = entry.map_err(Error::io("list", dir))?;
        let size = entry.metadata().map_err(Error::io("read", &entry.path()))?.len();
        sizes.push(format!("{} {size}", entry.file_name().to_string_lossy()));
    }
    sizes.sort();
    Ok(blake3::hash(sizes.join("\n").as_bytes()).to_hex().to_string())
}

/// The hash of a manifest's content.
pub(crate) fn of_manifest(content: &[u8]) -> String {
    blake3::hash(content).to_hex().to_string()
}

#[cfg(test)]
mod tests {
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
}

//! `corver-passages.json`: the manifest of finished passages.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::passages::{PassageError, PassageLocation};

/// File name of the manifest. It is written last: passages that have it are complete.
pub(crate) const MANIFEST: &str = "corver-passages.json";

const FORMAT: &str = "corver-passages";
/// Version of the format. Passages of another version are made again.
pub const VERSION: u32 = 2;

/// Origin, options, sizes and files of an index's passages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PassageManifest {
    format: String,
    version: u32,
    /// Fingerprint of the index that the passages were cut from.
    pub index: String,
    /// Longest passage, words; 1 or more.
    pub words: usize,
    /// Number of documents of the index.
    pub documents: u64,
    /// Number of documents that have a title.
    pub titled: u64,
    /// Number of passages.
    pub passages: u64,
    /// Size in bytes of every other file of the folder, by name.
    pub files: BTreeMap<String, u64>,
}

impl PassageManifest {
    pub(crate) fn new(index: String, words: usize) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            index,
            words,
            documents: 0,
            titled: 0,
            passages: 0,
            files: BTreeMap::new(),
        }
    }

    /// Reads the manifest, and checks the version, the size of every file and that the index is
    /// still the same.
    ///
    /// # Errors
    /// Fails if the manifest cannot be read or a check fails. The message names the command that
    /// builds the passages.
    pub fn load(location: &PassageLocation) -> Result<Self, PassageError> {
        #[derive(Deserialize)]
        struct PassageHeader {
            format: String,
            version: u32,
        }

        let folder = location.folder();
        let path = folder.join(MANIFEST);
        let json = match std::fs::read(&path) {
            Ok(json) => json,
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return Err(PassageError::InvalidPassages(format!(
                    "there are no passages in {}: make them with `{}`",
                    folder.display(),
                    location.build_command()
                )));
            }
            Err(e) => return Err(PassageError::io("read", &path)(e)),
        };
        let unreadable =
            |error: serde_json::Error| location.damaged(format!("{MANIFEST}: {error}"));
        // The header first: with fields of a later version, the error would be about an unknown
        // field, not about the version.
        let header: PassageHeader = serde_json::from_slice(&json).map_err(unreadable)?;
        if header.format != FORMAT || header.version != VERSION {
            return Err(PassageError::InvalidPassages(format!(
                "the passages in {} are {} version {}, but this program reads {FORMAT} version \
                 {VERSION}: make them again with `{}`",
                folder.display(),
                header.format,
                header.version,
                location.build_command()
            )));
        }
        let manifest: Self = serde_json::from_slice(&json).map_err(unreadable)?;
        if corver_corpus::fingerprint(location.index())? != manifest.index {
            return Err(PassageError::InvalidPassages(format!(
                "the passages in {} were made from another index than {} is now: make them \
                 again with `{}`",
                folder.display(),
                location.index().display(),
                location.build_command()
            )));
        }
        for (name, &expected) in &manifest.files {
            match std::fs::metadata(folder.join(name)) {
                Ok(file) if file.len() == expected => {}
                Ok(file) => {
                    return Err(location.damaged(format!(
                        "{name} has {} bytes instead of {expected}",
                        file.len()
                    )));
                }
                Err(error) => return Err(location.damaged(format!("{name}: {error}"))),
            }
        }
        Ok(manifest)
    }

    /// Lists the files of a finished folder, and adds the manifest to them.
    pub(crate) fn write(&mut self, folder: &Path) -> Result<(), PassageError> {
        self.files.clear();
        for entry in std::fs::read_dir(folder).map_err(PassageError::io("list", folder))? {
            let entry = entry.map_err(PassageError::io("list", folder))?;
            let size = entry.metadata().map_err(PassageError::io("list", folder))?.len();
            self.files.insert(entry.file_name().to_string_lossy().into_owned(), size);
        }
        let path = folder.join(MANIFEST);
        let json = serde_json::to_vec_pretty(self).expect("names and numbers are JSON");
        corver_files::create(&path, &json).map_err(PassageError::io("write", &path))
    }
}

//! `corver-passages.json`: what finished passages say about themselves.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::passages::{PassageError, Place};

/// The manifest's file name. It is written last: its presence says that the passages are complete.
pub(crate) const MANIFEST: &str = "corver-passages.json";

const FORMAT: &str = "corver-passages";
const VERSION: u32 = 1;

/// The content of the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PassageManifest {
    format: String,
    version: u32,
    /// Fingerprint of the index that they were made from.
    pub index: String,
    /// Words of a passage, at most.
    pub words: usize,
    /// Documents of the index.
    pub documents: u64,
    /// Those that have a title.
    pub titled: u64,
    /// Passages.
    pub passages: u64,
    /// Every other file of the folder, and its size in bytes.
    pub files: BTreeMap<String, u64>,
}

impl PassageManifest {
    pub(crate) fn new(index: String, words: usize) -> Self {
        let (format, version) = (FORMAT.to_owned(), VERSION);
        Self {
            format,
            version,
            index,
            words,
            documents: 0,
            titled: 0,
            passages: 0,
            files: BTreeMap::new(),
        }
    }

    /// Reads the manifest of passages that are complete and of this program's version. Checks that
    /// every file is there and as long as it was, and that the index is still the same.
    ///
    /// # Errors
    /// Where one of that is not so.
    pub fn load(place: &Place) -> Result<Self, PassageError> {
        #[derive(Deserialize)]
        struct Header {
            format: String,
            version: u32,
        }

        let folder = place.folder();
        let path = folder.join(MANIFEST);
        let json = match std::fs::read(&path) {
            Ok(json) => json,
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return Err(PassageError::InvalidPassages(format!(
                    "there are no passages in {}: make them with `{}`",
                    folder.display(),
                    place.remedy()
                )));
            }
            Err(e) => return Err(PassageError::io("read", &path)(e)),
        };
        let unreadable = |error: serde_json::Error| place.damaged(format!("{MANIFEST}: {error}"));
        // The header first: a later version may have fields that this one would only call unknown.
        let header: Header = serde_json::from_slice(&json).map_err(unreadable)?;
        if header.format != FORMAT || header.version != VERSION {
            return Err(PassageError::InvalidPassages(format!(
                "the passages in {} are {} version {}, but this program reads {FORMAT} version \
                 {VERSION}: make them anew with `{}`",
                folder.display(),
                header.format,
                header.version,
                place.remedy()
            )));
        }
        let manifest: Self = serde_json::from_slice(&json).map_err(unreadable)?;
        if corver_corpus::fingerprint(place.index())? != manifest.index {
            return Err(PassageError::InvalidPassages(format!(
                "the passages in {} were made from another index than {} is now: make them anew \
                 with `{}`",
                folder.display(),
                place.index().display(),
                place.remedy()
            )));
        }
        for (name, &expected) in &manifest.files {
            match std::fs::metadata(folder.join(name)) {
                Ok(file) if file.len() == expected => {}
                Ok(file) => {
                    return Err(place.damaged(format!(
                        "{name} has {} bytes instead of {expected}",
                        file.len()
                    )));
                }
                Err(error) => return Err(place.damaged(format!("{name}: {error}"))),
            }
        }
        Ok(manifest)
    }

    /// Writes it into a folder whose other files are whole.
    pub(crate) fn write(&mut self, folder: &Path) -> Result<(), PassageError> {
        let listing = |source| PassageError::io("list", folder)(source);
        self.files.clear();
        for entry in std::fs::read_dir(folder).map_err(listing)? {
            let entry = entry.map_err(listing)?;
            let size = entry.metadata().map_err(listing)?.len();
            self.files.insert(entry.file_name().to_string_lossy().into_owned(), size);
        }
        let path = folder.join(MANIFEST);
        let json = serde_json::to_vec_pretty(self).expect("names and numbers are JSON");
        corver_files::create(&path, &json).map_err(PassageError::io("write", &path))
    }
}

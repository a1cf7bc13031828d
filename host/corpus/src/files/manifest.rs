//! The manifest of a finished build, `corver-index.json`.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::files::format::{UNFINISHED, shard_of};
use crate::files::mapped_file::MappedFile;
use crate::fingerprint;
use crate::token_width::TokenWidth;

/// File name of the manifest. It is written last: a folder with a manifest is a complete index.
pub const MANIFEST: &str = "corver-index.json";

const FORMAT: &str = "corver-index";
/// Version of the manifest that this crate writes, and the only one that it reads.
pub const MANIFEST_VERSION: u32 = 2;

/// The manifest of an index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IndexManifest {
    format: String,
    version: u32,
    /// Width of the tokens of every shard.
    pub token_width: TokenWidth,
    /// blake3 hash of the `tokenizer.json` next to the manifest; `None` if the index was built from
    /// token ids.
    pub tokenizer: Option<String>,
    /// Exclusive upper bound of the token ids; `None` if the index was built from token ids.
    pub num_ids: Option<u32>,
    /// Number of documents in all shards.
    pub documents: u64,
    /// Number of tokens in all shards, one separator per document included.
    pub tokens: u64,
    /// Size of the tokenised text, bytes of UTF-8; 0 if it is not known: the index was built from
    /// token ids or by another program.
    pub text_bytes: u64,
    /// Number of shards; 1 or more.
    pub shards: usize,
    /// All other files of the folder, by name.
    pub files: BTreeMap<String, FileRecord>,
    /// Fingerprint: the hash of the manifest file. Empty if it was not loaded from a file.
    #[serde(skip)]
    pub(crate) fingerprint: String,
}

/// Size and checksum of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRecord {
    /// Size of the file, bytes.
    pub bytes: u64,
    /// blake3 hash of the content, in hexadecimal.
    pub blake3: String,
}

impl FileRecord {
    /// Reads a file, and returns its size and checksum.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let file = match std::fs::File::open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::missing(path));
            }
            Err(e) => return Err(Error::io("open", path)(e)),
        };
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(file).map_err(Error::io("read", path))?;
        Ok(Self { bytes: hasher.count(), blake3: hasher.finalize().to_hex().to_string() })
    }
}

impl IndexManifest {
    pub(crate) fn new(token_width: TokenWidth, shards: usize) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: MANIFEST_VERSION,
            token_width,
            tokenizer: None,
            num_ids: None,
            documents: 0,
            tokens: 0,
            text_bytes: 0,
            shards,
            files: BTreeMap::new(),
            fingerprint: String::new(),
        }
    }

    /// Loads a folder's manifest; `None` if another program built the index.
    pub(crate) fn load(dir: &Path) -> Result<Option<Self>> {
        #[derive(Deserialize)]
        struct ManifestHeader {
            format: String,
            version: u32,
        }

        if dir.join(UNFINISHED).exists() {
            return Err(Error::InvalidIndex(format!(
                "{} is an unfinished build: repeat the command that began it",
                dir.display()
            )));
        }
        let path = dir.join(MANIFEST);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io("read", &path)(e)),
        };
        // The header first: a later version's new fields must not be reported as unknown ones.
        let header: ManifestHeader =
            serde_json::from_slice(&text).map_err(|error| Error::json(&path, &error))?;
        if header.format != FORMAT || header.version != MANIFEST_VERSION {
            return Err(Error::InvalidIndex(format!(
                "{}: manifest {} version {}, but this program reads {FORMAT} version \
                 {MANIFEST_VERSION}; rebuild the index or update the program",
                path.display(),
                header.format,
                header.version
            )));
        }
        let manifest: Self =
            serde_json::from_slice(&text).map_err(|error| Error::json(&path, &error))?;
        Ok(Some(Self { fingerprint: fingerprint::hash_manifest(&text), ..manifest }))
    }

    /// Checks that the manifest lists a file with its actual size.
    pub(crate) fn check_size(&self, bytes: &MappedFile, name: &str) -> Result<()> {
        match self.files.get(name) {
            Some(record) if record.bytes == bytes.len() as u64 => Ok(()),
            Some(record) => Err(bytes.wrong_size(format!("the manifest says {}", record.bytes))),
            None => Err(bytes.wrong_size("the manifest does not list this file".to_owned())),
        }
    }

    /// Returns the files of the open shards, and those that belong to no shard.
    pub(crate) fn files_of(
        &self,
        is_open: impl Fn(usize) -> bool,
    ) -> impl Iterator<Item = (&String, &FileRecord)> {
        self.files.iter().filter(move |(name, _)| shard_of(name).is_none_or(&is_open))
    }

    /// Checks that each of [`Self::files_of`] is in the folder and has the recorded size.
    pub(crate) fn check_sizes(&self, dir: &Path, is_open: impl Fn(usize) -> bool) -> Result<()> {
        for (name, record) in self.files_of(is_open) {
            if Path::new(name).file_name() != Some(name.as_ref()) {
                return Err(Error::InvalidIndex(format!(
                    "{}: lists {name:?}, which is no file name: the manifest is damaged or \
                     foreign; rebuild the index",
                    dir.join(MANIFEST).display()
                )));
            }
            let path = dir.join(name);
            let file = match std::fs::metadata(&path) {
                Ok(file) => file,
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                    return Err(Error::missing(&path));
                }
                Err(e) => return Err(Error::io("read the size of", &path)(e)),
            };
            if !file.is_file() || file.len() != record.bytes {
                let expected = format!("the manifest says {}", record.bytes);
                return Err(Error::size(&path, file.len(), expected));
            }
        }
        Ok(())
    }
}

//! `corver-index.json`: what a finished build says about itself.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::files::bytes::Bytes;
use crate::files::format::{UNFINISHED, shard_of};
use crate::fingerprint;
use crate::token_width::TokenWidth;

/// The manifest's file name. It is written last: its presence says that the build is complete.
pub const MANIFEST: &str = "corver-index.json";

const FORMAT: &str = "corver-index";
/// The version of what this crate builds. It opens no other.
pub const MANIFEST_VERSION: u32 = 2;

/// The content of the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IndexManifest {
    format: String,
    version: u32,
    /// Width of the tokens of every shard.
    pub token_width: TokenWidth,
    /// blake3 of the `tokenizer.json` beside the manifest; absent where the index was built from
    /// token ids.
    pub tokenizer: Option<String>,
    /// All ids in the index are below this; absent where the index was built from token ids.
    pub num_ids: Option<u32>,
    /// Documents in all shards.
    pub documents: u64,
    /// Tokens in all shards, one separator per document included.
    pub tokens: u64,
    /// Bytes of text (UTF-8) that were tokenised; 0 where the index was built from token ids.
    pub text_bytes: u64,
    /// Number of shards.
    pub shards: usize,
    /// Every other file of the folder.
    pub files: BTreeMap<String, FileRecord>,
    /// The hash of the file that this was read from.
    #[serde(skip)]
    pub(crate) fingerprint: String,
}

/// Size and checksum of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRecord {
    /// Size.
    pub bytes: u64,
    /// blake3, in hexadecimal.
    pub blake3: String,
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

    /// The folder's manifest; `None` in an index that another program made.
    pub(crate) fn load(dir: &Path) -> Result<Option<Self>> {
        #[derive(Deserialize)]
        struct Header {
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
        // The header first: a later version may have fields that this one would only call unknown.
        let header: Header =
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
        Ok(Some(Self { fingerprint: fingerprint::of_manifest(&text), ..manifest }))
    }

    /// Checks that the manifest lists a file, with the size that it has.
    pub(crate) fn check_size(&self, bytes: &Bytes, name: &str) -> Result<()> {
        match self.files.get(name) {
            Some(record) if record.bytes == bytes.len() as u64 => Ok(()),
            Some(record) => Err(bytes.wrong_size(format!("the manifest says {}", record.bytes))),
            None => Err(bytes.wrong_size("the manifest does not list this file".to_owned())),
        }
    }

    /// The files of the shards that are open, and those of the whole index.
    pub(crate) fn files_of(
        &self,
        is_open: impl Fn(usize) -> bool,
    ) -> impl Iterator<Item = (&String, &FileRecord)> {
        self.files.iter().filter(move |(name, _)| shard_of(name).is_none_or(&is_open))
    }

    /// Checks that every one of [`Self::files_of`] lies in the folder and has its size.
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

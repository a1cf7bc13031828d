//! The layout on disk: Infini-gram v4 files, and the manifest and the keys that this crate adds.
//!
//! An index is a folder. Shard `K` has `tokenized.K` (the token stream), `table.K` (its suffix array: byte offsets of a
//! fixed width) and `offset.K` (where each document starts), and perhaps `metadata.K` and `metaoff.K`. What
//! has another name the official engine leaves alone: the manifest, the tokenizer, and `keys.K` ([`crate::saved`]).

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The manifest's file name. Its presence says that the build came to its end.
pub const MANIFEST: &str = "corver-index.json";
/// What an unfinished build has in the place of the manifest.
pub(crate) const UNFINISHED: &str = "corver-build.json";
/// The copy of the tokenizer that built the index.
pub const TOKENIZER: &str = "tokenizer.json";

const FORMAT: &str = "corver-index";
const VERSION: u32 = 1;

/// Bytes per token of `tokenized.K`, little-endian. The separator between documents is all ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenWidth {
    /// One byte: vocabularies up to 255.
    U8,
    /// Two bytes: vocabularies up to 65,535 (Llama 2, GPT-2, OLMo). The format's default.
    U16,
    /// Four bytes: larger vocabularies (Llama 3, Qwen).
    U32,
}

impl TokenWidth {
    /// The narrowest width for ids below `num_ids`, the separator set aside.
    pub fn for_vocabulary(num_ids: u32) -> Self {
        match num_ids {
            0..=0xFF => Self::U8,
            0x100..=0xFFFF => Self::U16,
            _ => Self::U32,
        }
    }

    /// Bytes per token.
    pub const fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::U16 => 2,
            Self::U32 => 4,
        }
    }

    /// The token that precedes every document.
    pub const fn separator(self) -> u32 {
        match self {
            Self::U8 => 0xFF,
            Self::U16 => 0xFFFF,
            Self::U32 => u32::MAX,
        }
    }

    /// The largest id that an index can hold, the separator aside.
    pub const fn largest_token(self) -> u32 {
        self.separator() - 1
    }

    /// Appends the tokens, little-endian. A query may hold the separator; a document may not.
    pub(crate) fn append(self, tokens: &[u32], out: &mut Vec<u8>) -> Result<()> {
        out.reserve(tokens.len() * self.bytes());
        for &token in tokens {
            if token > self.separator() {
                return Err(Error::TokenTooLarge { token, width: self });
            }
            out.extend_from_slice(&token.to_le_bytes()[..self.bytes()]);
        }
        Ok(())
    }

    /// One token of a stream; `at` is the token's index.
    pub(crate) fn read(self, stream: &[u8], at: u64) -> Option<u32> {
        let start = usize::try_from(at).ok()?.checked_mul(self.bytes())?;
        let bytes = stream.get(start..start.checked_add(self.bytes())?)?;
        Some(bytes.iter().rev().fold(0, |token, &byte| token << 8 | u32::from(byte)))
    }
}

impl fmt::Display for TokenWidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "u{}", 8 * self.bytes())
    }
}

/// Bytes per entry of `table.K` for a stream of so many bytes: enough for every offset, as the official builder has it.
pub(crate) fn pointer_width(stream_bytes: u64) -> usize {
    let bits = u64::BITS - stream_bytes.saturating_sub(1).leading_zeros();
    bits.div_ceil(8).max(1) as usize
}

/// The families of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Tokenized,
    Table,
    Offset,
    Metadata,
    Metaoff,
    /// Not part of the format: see [`crate::saved`].
    Keys,
}

impl Family {
    pub(crate) fn file_name(self, shard: usize) -> String {
        let family = match self {
            Self::Tokenized => "tokenized",
            Self::Table => "table",
            Self::Offset => "offset",
            Self::Metadata => "metadata",
            Self::Metaoff => "metaoff",
            Self::Keys => "keys",
        };
        format!("{family}.{shard}")
    }

    pub(crate) fn path(self, dir: &Path, shard: usize) -> PathBuf {
        dir.join(self.file_name(shard))
    }
}

/// What a finished build says about itself, in `corver-index.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    format: String,
    version: u32,
    /// Width of the tokens of every shard.
    pub token_width: TokenWidth,
    /// blake3 of the `tokenizer.json` beside the manifest; absent where the index was built from token ids.
    pub tokenizer: Option<String>,
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

impl Manifest {
    pub(crate) fn new(token_width: TokenWidth, shards: usize) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            token_width,
            tokenizer: None,
            documents: 0,
            tokens: 0,
            text_bytes: 0,
            shards,
            files: BTreeMap::new(),
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
            return Err(Error::Unfinished { path: dir.to_owned() });
        }
        let path = dir.join(MANIFEST);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io("read", &path)(e)),
        };
        // The header first: a later version may have fields that this one would only call unknown.
        let header: Header =
            serde_json::from_slice(&text).map_err(|source| Error::Json { path: path.clone(), source })?;
        if header.format != FORMAT || header.version != VERSION {
            let got = format!("{} version {}", header.format, header.version);
            return Err(Error::ManifestVersion { path, got, expected: format!("{FORMAT} version {VERSION}") });
        }
        serde_json::from_slice(&text).map(Some).map_err(|source| Error::Json { path, source })
    }

    /// Every file that it lists must lie in the folder and have its size.
    pub(crate) fn check_sizes(&self, dir: &Path) -> Result<()> {
        for (name, record) in &self.files {
            if Path::new(name).file_name() != Some(name.as_ref()) {
                return Err(Error::FileName { path: dir.join(MANIFEST), name: name.clone() });
            }
            let path = dir.join(name);
            let file = match std::fs::metadata(&path) {
                Ok(file) => file,
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(Error::MissingFile { path }),
                Err(e) => return Err(Error::io("read the size of", &path)(e)),
            };
            if !file.is_file() || file.len() != record.bytes {
                let expected = format!("the manifest says {}", record.bytes);
                return Err(Error::Size { path, bytes: file.len(), expected });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_just_wide_enough() {
        let cases = [
            (1, 1),
            (2, 1),
            (256, 1),
            (257, 2),
            (65_536, 2),
            (65_537, 3),
            (1 << 24, 3),
            ((1 << 24) + 1, 4),
            (11_000_000_000, 5),
        ];
        for (bytes, width) in cases {
            assert_eq!(pointer_width(bytes), width, "{bytes} bytes");
        }
    }

    #[test]
    fn the_separator_is_no_vocabulary_id() {
        assert_eq!(TokenWidth::for_vocabulary(255), TokenWidth::U8);
        assert_eq!(TokenWidth::for_vocabulary(256), TokenWidth::U16);
        assert_eq!(TokenWidth::for_vocabulary(65_535), TokenWidth::U16);
        assert_eq!(TokenWidth::for_vocabulary(65_536), TokenWidth::U32);
    }

    #[test]
    fn tokens_are_little_endian() {
        let mut bytes = Vec::new();
        TokenWidth::U16.append(&[1, 0xFFFF], &mut bytes).unwrap();
        assert_eq!(bytes, [1, 0, 0xFF, 0xFF]);
        assert_eq!(TokenWidth::U16.read(&bytes, 1), Some(0xFFFF));
        assert_eq!(TokenWidth::U16.read(&bytes, 2), None);
        assert!(matches!(
            TokenWidth::U16.append(&[0x1_0000], &mut bytes),
            Err(Error::TokenTooLarge { token: 0x1_0000, .. })
        ));
    }
}

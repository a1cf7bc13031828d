//! The layout on disk: Infini-gram v4 files, and the files that this crate adds.
//!
//! An index is a folder. Shard `K` has `tokenized.K` (the token stream), `table.K` (its suffix
//! array: byte offsets of a fixed width) and `offset.K` (where each document starts), and perhaps
//! `metadata.K` and `metaoff.K`. The official engine ignores files of other names: the manifest,
//! the tokenizer, and `prefixes.K` (`prefix_file.rs`).

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::token_width::TokenWidth;

/// File name of the index's copy of its tokenizer.
pub const TOKENIZER: &str = "tokenizer.json";
/// File name of the state of an unfinished build. It is replaced by the manifest.
pub(crate) const UNFINISHED: &str = "corver-build.json";

/// A kind of file that each shard has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    Tokenized,
    Table,
    Offset,
    Metadata,
    Metaoff,
    /// An addition to Infini-gram's format.
    Prefixes,
}

impl FileKind {
    pub(crate) fn file_name(self, shard: usize) -> String {
        let family = match self {
            Self::Tokenized => "tokenized",
            Self::Table => "table",
            Self::Offset => "offset",
            Self::Metadata => "metadata",
            Self::Metaoff => "metaoff",
            Self::Prefixes => "prefixes",
        };
        format!("{family}.{shard}")
    }

    pub(crate) fn path(self, dir: &Path, shard: usize) -> PathBuf {
        dir.join(self.file_name(shard))
    }
}

/// Returns the shard of a file; `None` if the file belongs to the complete index.
pub(crate) fn shard_of(file_name: &str) -> Option<usize> {
    file_name.rsplit_once('.').and_then(|(_, number)| number.parse().ok())
}

/// Returns the fewest bytes per entry of `table.K` that hold every byte offset of a stream.
pub(crate) fn pointer_width(stream_bytes: u64) -> usize {
    let bits = u64::BITS - stream_bytes.saturating_sub(1).leading_zeros();
    bits.div_ceil(8).max(1) as usize
}

/// Encodes tokens as in a stream, little-endian. The separator is allowed: a query may hold it.
///
/// # Errors
/// Fails if an id does not fit the width.
pub(crate) fn encode(tokens: &[u32], width: TokenWidth) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(tokens.len() * width.bytes());
    append(tokens, width, &mut bytes)?;
    Ok(bytes)
}

/// Encodes a document as in a stream: the separator, then its tokens.
///
/// # Errors
/// Fails if an id does not fit the width, or is the separator.
pub(crate) fn encode_document(ids: &[u32], width: TokenWidth) -> Result<Vec<u8>> {
    let separator = width.separator();
    if let Some(&token) = ids.iter().find(|&&id| id >= separator) {
        return Err(Error::token_too_large(token, width));
    }
    let mut bytes = Vec::with_capacity((ids.len() + 1) * width.bytes());
    append(&[separator], width, &mut bytes)?;
    append(ids, width, &mut bytes)?;
    Ok(bytes)
}

fn append(tokens: &[u32], width: TokenWidth, bytes: &mut Vec<u8>) -> Result<()> {
    for &token in tokens {
        if token > width.separator() {
            return Err(Error::token_too_large(token, width));
        }
        bytes.extend_from_slice(&token.to_le_bytes()[..width.bytes()]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointer_width_is_minimal_for_stream_size() {
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
    fn tokens_are_little_endian() {
        let bytes = encode(&[1, 0xFFFF], TokenWidth::U16).unwrap();
        assert_eq!(bytes, [1, 0, 0xFF, 0xFF]);
        assert_eq!(TokenWidth::U16.read(&bytes, 1), Some(0xFFFF));
        assert_eq!(TokenWidth::U16.read(&bytes, 2), None);
        assert!(matches!(
            encode(&[0x1_0000], TokenWidth::U16),
            Err(Error::InvalidArgument(message)) if message.starts_with("token id 65536 ")
        ));
        assert!(matches!(
            encode_document(&[0xFFFF], TokenWidth::U16),
            Err(Error::InvalidArgument(message)) if message.starts_with("token id 65535 ")
        ));
    }
}

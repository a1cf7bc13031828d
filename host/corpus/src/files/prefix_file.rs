//! `prefixes.K`: the first bytes of every 64th suffix, as a search tree whose nodes are pages.
//!
//! A search in a cold index reads a page of the table and a page of the stream at nearly every
//! step. This file replaces the first steps by one page per level. There are two levels up to 16
//! million tokens, three up to 8 billion, and four beyond; all but the finest are small enough to
//! stay in memory. One page of the table and six steps in the stream remain. Indexes of other
//! programs do not have the file, and small indexes do not need it.
//!
//! The finest level comes first. Each further level has every 512th prefix of the level before it,
//! down to one page. Levels are aligned to pages and padded with zeros.

use std::path::Path;

use crate::error::{Error, Result};
use crate::files::format::FileKind;
use crate::files::manifest::IndexManifest;
use crate::files::mapped_file::MappedFile;

/// Size of a prefix, bytes. Prefixes are compared as big-endian numbers.
pub(crate) const PREFIX_BYTES: usize = 8;
/// Distance from one prefix of the finest level to the next, ranks. Halving it doubles the file and
/// saves one step of a search.
pub(crate) const STRIDE: u64 = 64;
/// Number of prefixes in a page.
pub(crate) const PER_PAGE: u64 = 512;
/// Size of the smallest shard with a prefix file, tokens. Smaller ones have so few pages that it
/// would save none.
const MIN_TOKENS: u64 = 1 << 16;

/// A level of the search tree: the prefixes of evenly spaced suffixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PrefixLevel {
    /// Distance from one prefix to the next, ranks. The first prefix has rank 0.
    pub(crate) stride: u64,
    /// Number of prefixes before this level in the file.
    pub(crate) start: u64,
    /// Number of prefixes in this level.
    pub(crate) len: u64,
}

/// Returns the levels of a shard, the finest first; none if the shard needs no prefix file.
pub(crate) fn levels(num_tokens: u64) -> Vec<PrefixLevel> {
    let mut levels = Vec::new();
    if num_tokens < MIN_TOKENS {
        return levels;
    }
    let mut stride = STRIDE;
    let mut start = 0;
    loop {
        let len = num_tokens.div_ceil(stride);
        levels.push(PrefixLevel { stride, start, len });
        if len <= PER_PAGE {
            return levels;
        }
        stride *= PER_PAGE;
        start += len.next_multiple_of(PER_PAGE);
    }
}

/// Returns the prefix of a suffix; zeros if the suffix is shorter than a prefix.
pub(crate) fn prefix(suffix: &[u8]) -> [u8; PREFIX_BYTES] {
    suffix.first_chunk().copied().unwrap_or_default()
}

/// The mapped prefix file of a shard.
#[derive(Debug)]
pub(crate) struct PrefixFile {
    bytes: MappedFile,
    levels: Vec<PrefixLevel>,
}

impl PrefixFile {
    /// Maps the prefix file of a shard; `None` if the manifest does not list one.
    pub(crate) fn open(
        dir: &Path,
        shard: usize,
        num_tokens: u64,
        manifest: Option<&IndexManifest>,
    ) -> Result<Option<Self>> {
        let name = FileKind::Prefixes.file_name(shard);
        let Some(manifest) = manifest.filter(|manifest| manifest.files.contains_key(&name)) else {
            return Ok(None);
        };
        let bytes = MappedFile::open(&FileKind::Prefixes.path(dir, shard))?;
        manifest.check_size(&bytes, &name)?;
        let levels = levels(num_tokens);
        let expected = levels.last().map_or(0, |last| last.start + last.len) * PREFIX_BYTES as u64;
        if bytes.len() as u64 != expected {
            return Err(
                bytes.wrong_size(format!("{expected} are the prefixes of {num_tokens} tokens"))
            );
        }
        bytes.expect_random_reads();
        Ok(Some(Self { bytes, levels }))
    }

    /// Returns each level with its prefixes by rank, the finest first.
    pub(crate) fn levels(
        &self,
    ) -> impl DoubleEndedIterator<Item = (PrefixLevel, &[[u8; PREFIX_BYTES]])> {
        let all = self.bytes.as_chunks().0;
        self.levels
            .iter()
            .map(move |&level| (level, &all[level.start as usize..][..level.len as usize]))
    }

    pub(crate) fn check_size(&self) -> Result<()> {
        self.bytes.check_size()
    }

    pub(crate) fn num_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Returns the error of an entry, numbered from the start of the file, that is not the prefix of
    /// its suffix.
    pub(crate) fn corrupt(&self, entry: u64, got: [u8; PREFIX_BYTES]) -> Error {
        let expected = "an entry is the first bytes of its suffix";
        Error::corrupt(self.bytes.path(), entry, u64::from_be_bytes(got), expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_levels_index_pages_of_previous_level() {
        assert_eq!(levels(MIN_TOKENS - 1), []);
        let level = |stride, start, len| PrefixLevel { stride, start, len };
        assert_eq!(levels(MIN_TOKENS), [level(64, 0, 1_024), level(64 * 512, 1_024, 2)]);
        assert_eq!(
            levels(5_500_000_000),
            [
                level(64, 0, 85_937_500),
                level(64 * 512, 85_937_664, 167_847),
                level(64 * 512 * 512, 86_105_600, 328)
            ]
        );
    }
}

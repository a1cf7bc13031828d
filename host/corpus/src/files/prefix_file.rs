//! `prefixes.K`: the first bytes of every 64th suffix, as a search tree whose nodes are pages.
//!
//! A search in a cold index reads a page of the table and a page of the stream at nearly every
//! step. This file answers the first steps: it costs a page per level, of which there are two up to
//! 16 million tokens, three up to 8 thousand million, and four beyond, and all levels but the
//! finest are small enough to stay in memory. One page of the table and six steps in the stream are
//! left. Indexes of other programs do not have the file, and small indexes do not need it.
//!
//! The finest level comes first. Each further one has every 512th prefix of the level before it,
//! down to one page. Levels begin at pages; what is left of a page is zeros.

use std::path::Path;

use crate::error::{Error, Result};
use crate::files::bytes::Bytes;
use crate::files::format::Family;
use crate::files::manifest::IndexManifest;

/// Bytes of a suffix that make its prefix. Prefixes are compared as big-endian numbers.
pub(crate) const PREFIX_BYTES: usize = 8;
/// Suffixes from one prefix of the finest level to the next. Halving it doubles the file and saves
/// one step of a search.
pub(crate) const STRIDE: u64 = 64;
/// Prefixes in a page.
pub(crate) const PER_PAGE: u64 = 512;
/// Shards of fewer tokens have so few pages that the file would save none.
const MIN_TOKENS: u64 = 1 << 16;

/// Evenly spaced suffixes whose prefixes stand together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Level {
    /// Suffixes from one prefix to the next; the first one's rank is 0.
    pub(crate) stride: u64,
    /// Prefixes before this level's in the file.
    pub(crate) start: u64,
    /// Prefixes.
    pub(crate) len: u64,
}

/// The levels of a shard, the finest first; none where the shard has no file.
pub(crate) fn levels(num_tokens: u64) -> Vec<Level> {
    let mut levels = Vec::new();
    if num_tokens < MIN_TOKENS {
        return levels;
    }
    let (mut stride, mut start) = (STRIDE, 0);
    loop {
        let len = num_tokens.div_ceil(stride);
        levels.push(Level { stride, start, len });
        if len <= PER_PAGE {
            return levels;
        }
        stride *= PER_PAGE;
        start += len.next_multiple_of(PER_PAGE);
    }
}

/// A suffix's prefix as the file holds it: zeros where the suffix is shorter.
pub(crate) fn prefix(suffix: &[u8]) -> [u8; PREFIX_BYTES] {
    suffix.first_chunk().copied().unwrap_or_default()
}

/// The mapped file of one shard.
#[derive(Debug)]
pub(crate) struct PrefixFile {
    bytes: Bytes,
    levels: Vec<Level>,
}

impl PrefixFile {
    /// Maps the file of a shard whose manifest lists one.
    pub(crate) fn open(
        dir: &Path,
        shard: usize,
        num_tokens: u64,
        manifest: Option<&IndexManifest>,
    ) -> Result<Option<Self>> {
        let name = Family::Prefixes.file_name(shard);
        let Some(manifest) = manifest.filter(|manifest| manifest.files.contains_key(&name)) else {
            return Ok(None);
        };
        let bytes = Bytes::open(&Family::Prefixes.path(dir, shard))?;
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

    /// Every level with its prefixes by rank, the finest first.
    pub(crate) fn levels(&self) -> impl DoubleEndedIterator<Item = (Level, &[[u8; PREFIX_BYTES]])> {
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

    /// An entry, counted from the start of the file, that is not the prefix of its suffix.
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
        let level = |stride, start, len| Level { stride, start, len };
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

//! `prefixes.K`: the first bytes of every 1,024th suffix, in rank order.
//!
//! A search in a cold index reads a page of the table and a page of the stream at nearly every step. This file, whose
//! pages hold hundreds of prefixes, answers the first steps; about one page of the table is left. Indexes of other
//! programs do not have the file, and small indexes do not need it.

use std::path::Path;

use crate::error::{Error, Result};
use crate::files::bytes::Bytes;
use crate::files::format::Family;
use crate::files::manifest::IndexManifest;

/// Bytes of a suffix that make its prefix. Prefixes are compared as big-endian numbers.
pub(crate) const PREFIX_BYTES: usize = 8;
/// Suffixes from one prefix to the next: about as many as a page has pointers.
pub(crate) const STRIDE: u64 = 1 << 10;
/// Shards of fewer tokens have so few pages that the file would save none.
const MIN_TOKENS: u64 = 1 << 16;

/// Prefixes in the file of a shard; 0 where the shard has no file.
fn num_prefixes(num_tokens: u64) -> u64 {
    if num_tokens < MIN_TOKENS { 0 } else { num_tokens.div_ceil(STRIDE) }
}

/// The ranks whose suffixes have a prefix in the file.
pub(crate) fn ranks(num_tokens: u64) -> impl Iterator<Item = u64> {
    (0..num_prefixes(num_tokens)).map(|number| number * STRIDE)
}

/// A suffix's prefix as the file holds it: zeros where the suffix is shorter.
pub(crate) fn prefix(suffix: &[u8]) -> [u8; PREFIX_BYTES] {
    suffix.first_chunk().copied().unwrap_or_default()
}

/// The mapped file of one shard.
#[derive(Debug)]
pub(crate) struct PrefixFile(Bytes);

impl PrefixFile {
    /// Maps the file of a shard whose manifest lists one.
    pub(crate) fn open(
        dir: &Path,
        shard: usize,
        num_tokens: u64,
        manifest: Option<&IndexManifest>,
    ) -> Result<Option<Self>> {
        let name = Family::Prefixes.file_name(shard);
        let Some(manifest) = manifest.filter(|manifest| manifest.files.contains_key(&name)) else { return Ok(None) };
        let bytes = Bytes::open(&Family::Prefixes.path(dir, shard))?;
        manifest.check_size(&bytes, &name)?;
        let expected = num_prefixes(num_tokens) * PREFIX_BYTES as u64;
        if bytes.len() as u64 != expected {
            return Err(bytes.wrong_size(format!("{expected} are the prefixes of {num_tokens} tokens")));
        }
        bytes.expect_random_reads();
        Ok(Some(Self(bytes)))
    }

    /// All prefixes, by rank.
    pub(crate) fn prefixes(&self) -> &[[u8; PREFIX_BYTES]] {
        self.0.as_chunks().0
    }

    pub(crate) fn check_size(&self) -> Result<()> {
        self.0.check_size()
    }

    pub(crate) fn num_bytes(&self) -> u64 {
        self.0.len() as u64
    }

    /// An entry that is not the prefix of its suffix.
    pub(crate) fn corrupt(&self, entry: usize) -> Error {
        Error::Corrupt {
            path: self.0.path().to_owned(),
            entry: entry as u64,
            got: u64::from_be_bytes(self.prefixes()[entry]),
            expected: "an entry is the first bytes of its suffix",
        }
    }
}

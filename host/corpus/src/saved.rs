//! `keys.K`: the first bytes of every 1,024th suffix, in a file of their own.
//!
//! A search in a cold index reads a page of the table and one of the stream at nearly every step. The first steps go through
//! this file instead, whose pages hold hundreds of keys: what is left is about one page of the table. Indexes of other
//! programs, and small ones, have no such file and need none.

use std::path::Path;

use crate::bytes::Bytes;
use crate::error::{Error, Result};
use crate::format::{Family, Manifest};
use crate::keys::{KEY_BYTES, Level};
use crate::shard::{Shard, check_against_manifest};

/// Suffixes between two keys: about as many as a page has pointers.
const STRIDE: u64 = 1 << 10;
/// Shards of fewer tokens have so few pages that the file would spare none.
const FEWEST_TOKENS: u64 = 1 << 16;

/// Keys in the file of a shard; 0 where there is no file.
fn num_keys(num_tokens: u64) -> u64 {
    if num_tokens < FEWEST_TOKENS { 0 } else { num_tokens.div_ceil(STRIDE) }
}

/// The ranks whose suffixes have a key in the file.
pub(crate) fn ranks(num_tokens: u64) -> impl Iterator<Item = u64> {
    (0..num_keys(num_tokens)).map(|number| number * STRIDE)
}

/// A suffix's key as it lies in the file: zeros where the suffix is shorter.
pub(crate) fn key(suffix: &[u8]) -> [u8; KEY_BYTES] {
    suffix.first_chunk().copied().unwrap_or_default()
}

#[derive(Debug)]
pub(crate) struct SavedKeys(Bytes);

impl SavedKeys {
    /// Maps the file of a shard whose manifest lists one.
    pub(crate) fn open(
        dir: &Path,
        number: usize,
        num_tokens: u64,
        manifest: Option<&Manifest>,
    ) -> Result<Option<Self>> {
        let name = Family::Keys.file_name(number);
        let Some(manifest) = manifest.filter(|manifest| manifest.files.contains_key(&name)) else { return Ok(None) };
        let bytes = Bytes::open(&Family::Keys.path(dir, number))?;
        check_against_manifest(&bytes, &name, manifest)?;
        let expected = num_keys(num_tokens) * KEY_BYTES as u64;
        if bytes.len() as u64 != expected {
            let expected = format!("{expected} are the keys of {num_tokens} tokens");
            return Err(Error::Size { path: bytes.path().to_owned(), bytes: bytes.len() as u64, expected });
        }
        bytes.expect_random_reads();
        Ok(Some(Self(bytes)))
    }

    /// Compares every key with its suffix.
    pub(crate) fn verify(&self, shard: &Shard) -> Result<()> {
        for (entry, (rank, saved)) in ranks(shard.num_tokens).zip(self.0.as_chunks().0).enumerate() {
            if *saved != key(shard.suffix(rank)?) {
                return Err(Error::Corrupt {
                    path: self.0.path().to_owned(),
                    entry: entry as u64,
                    got: u64::from_be_bytes(*saved),
                    expected: "a key is the first bytes of its suffix",
                });
            }
        }
        Ok(())
    }

    pub(crate) fn num_bytes(&self) -> u64 {
        self.0.len() as u64
    }
}

impl Level for SavedKeys {
    fn stride(&self) -> u64 {
        STRIDE
    }

    fn key(&self, _: &Shard, number: u64) -> Result<Option<u64>> {
        let key = u64::from_be_bytes(self.0.as_chunks().0[number as usize]);
        Ok((key != 0).then_some(key))
    }
}

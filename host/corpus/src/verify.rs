//! Verification of an index's content. Opening an index skips it, because its time grows with the
//! index.

use std::cmp::Ordering;
use std::path::Path;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::files::manifest::{FileRecord, IndexManifest};
use crate::files::prefix_file::{self, PrefixFile};
use crate::files::shard::Shard;
use crate::index::open::{Index, OpenOptions};

/// The part of the suffix array that [`verify`] checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerifyLevel {
    /// This many pairs of neighbouring suffixes per shard, evenly spaced, and as many prefixes of
    /// each level.
    Sampled(u64),
    /// All suffixes and all prefixes. Slow on a large index, and very slow if one text repeats
    /// through most of it.
    Full,
}

impl VerifyLevel {
    /// Returns the distance from one checked item to the next, of `total` items.
    fn step(self, total: u64) -> u64 {
        match self {
            Self::Full | Self::Sampled(0) => 1,
            Self::Sampled(number) => total.div_ceil(number).max(1),
        }
    }
}

/// The numbers of items that [`verify`] found correct.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct VerifyReport {
    /// Number of files with the checksum of the manifest; 0 without a manifest.
    pub checksums: u64,
    /// Number of documents whose offset is that of a separator, with no separator in between.
    pub documents: u64,
    /// Number of pairs of neighbouring suffixes in ascending order.
    pub suffix_pairs: u64,
}

/// Verifies the open shards of an index: file sizes, checksums if there is a manifest, document
/// offsets, the order of the suffix array, and the prefix files.
///
/// # Errors
/// Fails with the first error found, with its file and entry.
pub fn verify(
    dir: impl AsRef<Path>,
    options: OpenOptions,
    level: VerifyLevel,
) -> Result<VerifyReport> {
    let index = Index::open_with(dir, options)?;
    let mut verified = VerifyReport::default();
    if let Some(manifest) = index.manifest() {
        verified.checksums = verify_checksums(&index, manifest)?;
    }
    for shard in index.shards() {
        verified.documents += verify_offsets(shard)?;
        verified.suffix_pairs += verify_order(shard, level)?;
        if let Some(file) = &shard.prefixes {
            verify_prefixes(shard, file, level)?;
        }
    }
    Ok(verified)
}

fn verify_checksums(index: &Index, manifest: &IndexManifest) -> Result<u64> {
    let mut verified = 0;
    for (name, expected) in manifest.files_of(|shard| index.shard(shard).is_some()) {
        let path = index.path().join(name);
        let got = FileRecord::read(&path)?;
        if got.bytes != expected.bytes {
            let expected = format!("the manifest says {}", expected.bytes);
            return Err(Error::size(&path, got.bytes, expected));
        }
        if got.blake3 != expected.blake3 {
            return Err(Error::checksum(&path, &got.blake3, &expected.blake3));
        }
        verified += 1;
    }
    Ok(verified)
}

/// Checks that the offsets are the positions of all separators, in ascending order.
fn verify_offsets(shard: &Shard) -> Result<u64> {
    let mut previous = None;
    for document in 0..shard.num_documents() {
        let start = shard.document_start(document)?; // fails unless there is a separator
        if previous.is_some_and(|previous| start <= previous) {
            let expected = "documents start one after the other";
            return Err(Error::corrupt(shard.offsets_path(), document, start, expected));
        }
        previous = Some(start);
    }
    let width = shard.width.bytes();
    let separators =
        shard.stream().chunks_exact(width).filter(|token| token.iter().all(|&b| b == 0xFF)).count()
            as u64;
    if separators != shard.num_documents() {
        let expected = "there are as many offsets as separators in the stream";
        let entry = shard.num_documents();
        return Err(Error::corrupt(shard.offsets_path(), entry, separators, expected));
    }
    Ok(separators)
}

/// Checks that every suffix is smaller than the next. If all are, no two are equal, and the table is
/// a permutation.
fn verify_order(shard: &Shard, level: VerifyLevel) -> Result<u64> {
    let pairs = shard.num_tokens - 1;
    let mut checked = 0;
    for rank in (0..pairs).step_by(level.step(pairs) as usize) {
        if shard.suffix(rank)?.cmp(shard.suffix(rank + 1)?) != Ordering::Less {
            let expected = "every suffix is greater than the one before it";
            let got = shard.position(rank + 1)?;
            return Err(Error::corrupt(shard.table_path(), rank + 1, got, expected));
        }
        checked += 1;
    }
    Ok(checked)
}

/// Checks that every prefix is that of its suffix.
fn verify_prefixes(shard: &Shard, file: &PrefixFile, level: VerifyLevel) -> Result<()> {
    for (tree_level, prefixes) in file.levels() {
        for (number, &got) in (0..).zip(prefixes).step_by(level.step(tree_level.len) as usize) {
            if got != prefix_file::prefix(shard.suffix(number * tree_level.stride)?) {
                return Err(file.corrupt(tree_level.start + number, got));
            }
        }
    }
    Ok(())
}

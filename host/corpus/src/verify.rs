//! Checking the content of an index. Opening it does not: that would take time that grows with the
//! index.

use std::cmp::Ordering;
use std::path::Path;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::files::manifest::{FileRecord, IndexManifest};
use crate::files::prefix_file::{self, PrefixFile};
use crate::files::shard::Shard;
use crate::index::open::{Index, OpenOptions};

/// How much of the suffix array [`verify`] checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// The order of this many pairs of neighbouring suffixes per shard, evenly spread, and as many
    /// prefixes of a level.
    Sampled(u64),
    /// The order of all suffixes, and all prefixes. Slow on a big index, and very slow where one
    /// text repeats through most of it.
    Full,
}

impl Level {
    /// Every how many of `total` are checked.
    fn step(self, total: u64) -> u64 {
        match self {
            Self::Full | Self::Sampled(0) => 1,
            Self::Sampled(wanted) => total.div_ceil(wanted).max(1),
        }
    }
}

/// What [`verify`] checked, and found right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Verified {
    /// Files whose checksum is the manifest's; 0 without a manifest.
    pub checksums: u64,
    /// Documents whose offset leads to a separator, and between which there is no other.
    pub documents: u64,
    /// Pairs of neighbouring suffixes in the right order.
    pub suffix_pairs: u64,
}

/// Verifies the index in a folder, or those of its shards that the options open: sizes, checksums
/// where there is a manifest, the documents' offsets, the order of the suffix array, and the prefix
/// files.
///
/// # Errors
/// The first thing that is wrong, with file and place.
pub fn verify(dir: impl AsRef<Path>, options: OpenOptions, level: Level) -> Result<Verified> {
    let index = Index::open_with(dir, options)?;
    let mut verified = Verified::default();
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
    for (name, FileRecord { bytes, blake3 }) in
        manifest.files_of(|shard| index.shard(shard).is_some())
    {
        let path = index.path().join(name);
        let file = match std::fs::File::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::missing(&path));
            }
            Err(e) => return Err(Error::io("open", &path)(e)),
        };
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(file).map_err(Error::io("read", &path))?;
        if hasher.count() != *bytes {
            let expected = format!("the manifest says {bytes}");
            return Err(Error::size(&path, hasher.count(), expected));
        }
        let got = hasher.finalize().to_hex();
        if got.as_str() != blake3 {
            return Err(Error::checksum(&path, &got, blake3));
        }
        verified += 1;
    }
    Ok(verified)
}

/// The offsets must be the separators' positions, ascending, all of them.
fn verify_offsets(shard: &Shard) -> Result<u64> {
    let mut previous = None;
    for document in 0..shard.num_documents() {
        let start = shard.document_start(document)?; // a separator, or an error
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

/// Every suffix must be smaller than the next. Where all are, no two are the same, and the table is
/// a permutation.
fn verify_order(shard: &Shard, level: Level) -> Result<u64> {
    let pairs = shard.num_tokens - 1;
    let width = shard.width.bytes();
    let suffix = |rank: u64| Ok(&shard.stream()[shard.position(rank)? as usize * width..]);
    let mut checked = 0;
    for rank in (0..pairs).step_by(level.step(pairs) as usize) {
        if suffix(rank)?.cmp(suffix(rank + 1)?) != Ordering::Less {
            let expected = "every suffix is greater than the one before it";
            let got = shard.position(rank + 1)?;
            return Err(Error::corrupt(shard.table_path(), rank + 1, got, expected));
        }
        checked += 1;
    }
    Ok(checked)
}

/// Every prefix must be that of its suffix.
fn verify_prefixes(shard: &Shard, file: &PrefixFile, level: Level) -> Result<()> {
    for (tree_level, prefixes) in file.levels() {
        for (number, &got) in (0..).zip(prefixes).step_by(level.step(tree_level.len) as usize) {
            if got != prefix_file::prefix(shard.suffix(number * tree_level.stride)?) {
                return Err(file.corrupt(tree_level.start + number, got));
            }
        }
    }
    Ok(())
}

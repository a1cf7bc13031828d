//! The first bytes of evenly spaced suffixes, side by side in memory.
//!
//! A binary search in a suffix array reads two distant places at each step: a pointer, and the text
//! that it points to. Every search makes its first steps at the same few suffixes. Their first
//! bytes are kept here, where neighbours share a cache line, so that only the last few steps read
//! the files.
//!
//! A prefix is read when a search first needs it. So opening stays cheap, and an index of another
//! program is searched as fast as one of ours.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::error::Result;
use crate::files::shard::Shard;

/// Suffixes from one prefix to the next, at least. With fewer, the prefixes would outgrow the
/// processor's caches.
const MIN_STRIDE: u64 = 16;
/// Prefixes of a shard, at most: 16 MiB.
const MAX_PREFIXES: u64 = 1 << 21;

#[derive(Debug)]
pub(crate) struct SampledPrefixes {
    /// Suffixes from one prefix to the next.
    pub(crate) stride: u64,
    len: usize,
    /// The prefix of the suffix of rank `stride * number`; 0 where it is not yet known (or is 0,
    /// and read again each time).
    prefixes: OnceLock<Box<[AtomicU64]>>,
}

impl SampledPrefixes {
    pub(crate) fn new(num_tokens: u64) -> Self {
        let stride = num_tokens.div_ceil(MAX_PREFIXES).next_power_of_two().max(MIN_STRIDE);
        Self { stride, len: num_tokens.div_ceil(stride) as usize, prefixes: OnceLock::new() }
    }

    /// The prefix of the suffix of rank `stride * number`, as a big-endian number; `None` where the
    /// suffix is shorter.
    pub(crate) fn get(&self, number: u64, shard: &Shard) -> Result<Option<u64>> {
        let prefixes =
            self.prefixes.get_or_init(|| (0..self.len).map(|_| AtomicU64::new(0)).collect());
        // Two threads may read the same prefix at once: they find, and store, the same number.
        if let known @ 1.. = prefixes[number as usize].load(Relaxed) {
            return Ok(Some(known));
        }
        let prefix =
            shard.suffix(number * self.stride)?.first_chunk().map(|head| u64::from_be_bytes(*head));
        if let Some(prefix) = prefix {
            prefixes[number as usize].store(prefix, Relaxed);
        }
        Ok(prefix)
    }
}

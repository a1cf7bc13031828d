//! A cache of the first bytes of evenly spaced suffixes.
//!
//! A binary search in a suffix array has two cache misses per step: a pointer, and the text that it
//! points to. All searches take their first steps at the same few suffixes. This cache holds their
//! first bytes, with neighbours in one cache line, so that only the last few steps read the files.
//!
//! A prefix is read when a search first needs it. So opening an index is cheap, and the index of
//! another program is searched as fast as one of this crate.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::error::Result;
use crate::files::shard::Shard;

/// Shortest distance from one prefix to the next, ranks. A shorter one would make the prefixes
/// outgrow the processor's caches.
const MIN_STRIDE: u64 = 16;
/// Largest number of prefixes of a shard: 16 MiB.
const MAX_PREFIXES: u64 = 1 << 21;

/// A lazily filled cache of suffix prefixes. Threads share it.
#[derive(Debug)]
pub(crate) struct SampledPrefixes {
    /// Distance from one prefix to the next, ranks.
    pub(crate) stride: u64,
    len: usize,
    /// Prefixes of the suffixes of rank `stride * number`. 0 is not yet known, or is a prefix of
    /// zeros, which is read again each time.
    prefixes: OnceLock<Box<[AtomicU64]>>,
}

impl SampledPrefixes {
    pub(crate) fn new(num_tokens: u64) -> Self {
        let stride = num_tokens.div_ceil(MAX_PREFIXES).next_power_of_two().max(MIN_STRIDE);
        Self { stride, len: num_tokens.div_ceil(stride) as usize, prefixes: OnceLock::new() }
    }

    /// Returns the prefix of the suffix of rank `stride * number`, as a big-endian number; `None` if
    /// the suffix is shorter than a prefix.
    pub(crate) fn get(&self, number: u64, shard: &Shard) -> Result<Option<u64>> {
        let prefixes =
            self.prefixes.get_or_init(|| (0..self.len).map(|_| AtomicU64::new(0)).collect());
        // Threads may race for a prefix: they read and store the same number.
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

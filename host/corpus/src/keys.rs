//! The first bytes of every so many-th suffix, side by side in memory.
//!
//! A binary search over the suffix array reads two far-off places at each step: a pointer, and the text that it points
//! to. Its first steps are the same ones again and again, at suffixes that are far apart. Their first bytes are kept
//! here, where neighbours share a cache line, so that only the last few steps go to the files.
//!
//! The keys fill themselves: one is read when a search first needs it. So opening stays cheap, and an index that another
//! program made is searched as fast as one of ours.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::error::Result;
use crate::segment::Segment;
use crate::shard::Shard;

/// Bytes of a suffix that make its key: a key is compared as one number.
pub(crate) const KEY_BYTES: usize = 8;
/// Suffixes between two keys, at least. With fewer, keys would outgrow the processor's caches.
const MIN_STRIDE: u64 = 16;
/// Keys of a shard, at most: 16 MiB.
const MAX_KEYS: u64 = 1 << 21;

/// Keys of suffixes whose ranks are evenly spaced: a search goes through them first.
pub(crate) trait Level {
    /// Suffixes between two keys.
    fn stride(&self) -> u64;

    /// A suffix's first bytes, as a big-endian number; `None` where they must be read.
    fn key(&self, shard: &Shard, number: u64) -> Result<Option<u64>>;

    /// The numbers of the keys whose suffixes' ranks lie in a segment.
    fn inside(&self, segment: Segment) -> (u64, u64) {
        (segment.start.div_ceil(self.stride()), segment.end.div_ceil(self.stride()))
    }

    /// The rank of a key's suffix.
    fn rank(&self, number: u64) -> u64 {
        number * self.stride()
    }
}

#[derive(Debug)]
pub(crate) struct Keys {
    stride: u64,
    len: usize,
    /// The key of suffix `stride * number`; 0 where it is not yet known (or is 0, and read again each time).
    keys: OnceLock<Box<[AtomicU64]>>,
}

impl Keys {
    pub(crate) fn new(num_tokens: u64) -> Self {
        let stride = num_tokens.div_ceil(MAX_KEYS).next_power_of_two().max(MIN_STRIDE);
        Self { stride, len: num_tokens.div_ceil(stride) as usize, keys: OnceLock::new() }
    }
}

impl Level for Keys {
    fn stride(&self) -> u64 {
        self.stride
    }

    fn key(&self, shard: &Shard, number: u64) -> Result<Option<u64>> {
        let keys = self.keys.get_or_init(|| (0..self.len).map(|_| AtomicU64::new(0)).collect());
        // Two threads may read the same key at once: they find, and store, the same number.
        if let known @ 1.. = keys[number as usize].load(Relaxed) {
            return Ok(Some(known));
        }
        let key = shard.suffix(self.rank(number))?.first_chunk().map(|head| u64::from_be_bytes(*head));
        if let Some(key) = key {
            keys[number as usize].store(key, Relaxed);
        }
        Ok(key)
    }
}

//! Sorted positions, kept from one query to the next.
//!
//! Sorting is what frequent words cost, and the same words come again and again. The part of a
//! frequent clause that the official engine samples is always the same, so sampled lists are kept
//! as well. Answers never depend on what is kept.

use std::sync::{Arc, Mutex};

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::error::Result;
use crate::files::shard::Shard;
use crate::suffix::positions::Positions;
use crate::suffix::search::{RankRange, num_ranks};

/// Shorter lists are sorted as fast as they are looked up.
const MIN_LENGTH: u64 = 256;
/// Longer lists are read and sorted by one thread at a time: each takes tens of megabytes or more,
/// and the disk reads them ahead anyway.
const LONG: u64 = 1 << 20;
/// An estimate of a list's size. The cache divides itself, for its locks, into parts of at least 32
/// lists of that size.
const ESTIMATED_LIST_BYTES: u64 = 1 << 20;

/// Lists of all shards of an index. Threads share it.
#[derive(Debug)]
pub(crate) struct PositionCache {
    lists: Cache<Key, Arc<Positions>, Bytes>,
    keeps_lists: bool,
    /// Held while a long list is read.
    long: Mutex<()>,
}

/// A shard's number, and the ranks of the positions; no ranks for the starts of the documents.
type Key = (usize, Box<[RankRange]>);

#[derive(Debug, Clone)]
struct Bytes;

impl Weighter<Key, Arc<Positions>> for Bytes {
    fn weight(&self, (_, ranges): &Key, list: &Arc<Positions>) -> u64 {
        (list.num_bytes() + size_of_val(&**ranges) + size_of::<Key>()) as u64
    }
}

impl PositionCache {
    /// Keeps at most about so many bytes.
    pub(crate) fn new(budget_bytes: u64) -> Self {
        let lists = (budget_bytes / ESTIMATED_LIST_BYTES).clamp(1, 1 << 20) as usize;
        Self {
            lists: Cache::with_weighter(lists, budget_bytes, Bytes),
            keeps_lists: budget_bytes > 0,
            long: Mutex::default(),
        }
    }

    /// The positions at some ranks, if they are kept.
    pub(crate) fn get(&self, shard: &Shard, ranges: &[RankRange]) -> Option<Arc<Positions>> {
        if num_ranks(ranges) < MIN_LENGTH {
            return None;
        }
        self.lists.get(&key(shard, ranges))
    }

    /// The positions at some ranks. They are kept from now on.
    pub(crate) fn get_or_read(
        &self,
        shard: &Shard,
        ranges: &[RankRange],
    ) -> Result<Arc<Positions>> {
        let read = || {
            let is_long = num_ranks(ranges) > LONG;
            let _alone =
                is_long.then(|| self.long.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
            Positions::read(shard, ranges).map(Arc::new)
        };
        if num_ranks(ranges) < MIN_LENGTH {
            read()
        } else {
            self.lists.get_or_insert_with(&key(shard, ranges), read)
        }
    }

    /// The starts of a shard's documents, if they are kept.
    pub(crate) fn kept_documents(&self, shard: &Shard) -> Option<Arc<Positions>> {
        self.lists.get(&key(shard, &[]))
    }

    /// The starts of a shard's documents; `None` where nothing is kept, as a single query is faster
    /// without them.
    pub(crate) fn documents(&self, shard: &Shard) -> Result<Option<Arc<Positions>>> {
        if !self.keeps_lists {
            return Ok(None);
        }
        let read = || Positions::of_documents(shard).map(Arc::new);
        self.lists.get_or_insert_with(&key(shard, &[]), read).map(Some)
    }
}

fn key(shard: &Shard, ranges: &[RankRange]) -> Key {
    (shard.number, ranges.into())
}

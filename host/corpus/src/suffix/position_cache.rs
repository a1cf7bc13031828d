//! A cache of sorted positions, shared by the queries of an index.
//!
//! Most of the cost of a frequent word is sorting its positions, and the same words recur in many
//! queries. The official engine always samples the same part of a frequent clause, so sampled lists
//! are cached, too. Counts do not depend on the cache.

use std::sync::{Arc, Mutex};

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::error::Result;
use crate::files::shard::Shard;
use crate::suffix::positions::PositionList;
use crate::suffix::search::{RankRange, num_ranks};

/// Length of the shortest cached list. A shorter one is sorted as fast as it is looked up.
const MIN_LENGTH: u64 = 256;
/// Length above which one thread at a time reads and sorts a list: it takes tens of megabytes or
/// more, and the disk reads it ahead anyway.
const LONG: u64 = 1 << 20;
/// Estimated size of a list, bytes. The cache divides itself, for its locks, into parts of at least
/// 32 lists of that size.
const ESTIMATED_LIST_BYTES: u64 = 1 << 20;

/// The sorted positions of all shards of an index. Threads share it.
#[derive(Debug)]
pub(crate) struct PositionCache {
    lists: Cache<Key, Arc<PositionList>, ByteWeighter>,
    is_enabled: bool,
    /// Lock of the thread that reads a long list.
    long: Mutex<()>,
}

/// Number of the shard, and the ranks of the positions; no ranks for the starts of the documents.
type Key = (usize, Box<[RankRange]>);

/// Weighs a list by its size in bytes.
#[derive(Debug, Clone)]
struct ByteWeighter;

impl Weighter<Key, Arc<PositionList>> for ByteWeighter {
    fn weight(&self, (_, ranges): &Key, list: &Arc<PositionList>) -> u64 {
        (list.num_bytes() + size_of_val(&**ranges) + size_of::<Key>()) as u64
    }
}

impl PositionCache {
    /// Creates an empty cache of about `budget_bytes`; 0 disables it.
    pub(crate) fn new(budget_bytes: u64) -> Self {
        let lists = (budget_bytes / ESTIMATED_LIST_BYTES).clamp(1, 1 << 20) as usize;
        Self {
            lists: Cache::with_weighter(lists, budget_bytes, ByteWeighter),
            is_enabled: budget_bytes > 0,
            long: Mutex::default(),
        }
    }

    /// Returns the positions at some ranks, if they are cached.
    pub(crate) fn get(&self, shard: &Shard, ranges: &[RankRange]) -> Option<Arc<PositionList>> {
        if num_ranks(ranges) < MIN_LENGTH {
            return None;
        }
        self.lists.get(&key(shard, ranges))
    }

    /// Returns the positions at some ranks, and caches them.
    pub(crate) fn get_or_read(
        &self,
        shard: &Shard,
        ranges: &[RankRange],
    ) -> Result<Arc<PositionList>> {
        if num_ranks(ranges) < MIN_LENGTH {
            return self.read(shard, ranges);
        }
        self.lists.get_or_insert_with(&key(shard, ranges), || self.read(shard, ranges))
    }

    fn read(&self, shard: &Shard, ranges: &[RankRange]) -> Result<Arc<PositionList>> {
        let is_long = num_ranks(ranges) > LONG;
        let _guard =
            is_long.then(|| self.long.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        PositionList::read(shard, ranges).map(Arc::new)
    }

    /// Returns the starts of a shard's documents, if they are cached.
    pub(crate) fn cached_document_starts(&self, shard: &Shard) -> Option<Arc<PositionList>> {
        self.lists.get(&key(shard, &[]))
    }

    /// Returns the starts of a shard's documents, and caches them; `None` if the cache is disabled,
    /// because a single query is faster without them.
    pub(crate) fn document_starts(&self, shard: &Shard) -> Result<Option<Arc<PositionList>>> {
        if !self.is_enabled {
            return Ok(None);
        }
        self.lists
            .get_or_insert_with(&key(shard, &[]), || {
                PositionList::read_document_starts(shard).map(Arc::new)
            })
            .map(Some)
    }
}

fn key(shard: &Shard, ranges: &[RankRange]) -> Key {
    (shard.number, ranges.into())
}

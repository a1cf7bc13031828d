//! Sorted lists of frequent clauses, kept from one query to the next.
//!
//! Sorting is what frequent clauses cost, and the same words come again and again. Which occurrences a clause keeps when it is
//! sampled is not random, so sampled lists are kept as well. Answers never depend on what is kept.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::clause::ShardClause;
use crate::error::Result;
use crate::positions::Positions;
use crate::segment::Segment;
use crate::shard::Shard;
use crate::zones::Kind;

/// Shorter lists are sorted as fast as they are looked up.
const SHORTEST: u64 = 256;
/// A guess at a list's size. The cache divides itself, for its locks, into parts of at least 32 lists of that size.
const LARGE_BYTES: u64 = 1 << 20;

/// Clauses whose losses are remembered.
const LOSSES: usize = 1 << 14;

/// Lists of all shards of an index. Threads share it.
#[derive(Debug)]
pub(crate) struct ListCache {
    lists: Cache<Key, Arc<Positions>, Bytes>,
    /// What earlier queries lost because a clause was not sorted; `None` where nothing is kept.
    losses: Option<Cache<Key, Arc<AtomicU64>>>,
}

/// A shard's number, the ranks that a clause keeps in it, and which zones of which reach; none for its positions.
type Key = (usize, Box<[Segment]>, Option<(Kind, u64)>);

#[derive(Debug, Clone)]
struct Bytes;

impl Weighter<Key, Arc<Positions>> for Bytes {
    fn weight(&self, (_, segments, _): &Key, list: &Arc<Positions>) -> u64 {
        (list.num_bytes() + size_of_val(&**segments) + size_of::<Key>()) as u64
    }
}

impl ListCache {
    /// Keeps at most about so many bytes.
    pub(crate) fn new(budget_bytes: u64) -> Self {
        let lists = (budget_bytes / LARGE_BYTES).clamp(1, 1 << 20) as usize;
        let losses = (budget_bytes > 0).then(|| Cache::new(LOSSES));
        Self { lists: Cache::with_weighter(lists, budget_bytes, Bytes), losses }
    }

    /// A clause's list if it is kept.
    pub(crate) fn known(&self, shard: &Shard, clause: &ShardClause) -> Option<Arc<Positions>> {
        if clause.num_positions() < SHORTEST {
            return None;
        }
        self.lists.get(&key(shard, clause, None))
    }

    /// A clause's list; now kept, if it was not before.
    pub(crate) fn list(&self, shard: &Shard, clause: &ShardClause) -> Result<Arc<Positions>> {
        let read = || Positions::read(shard, &clause.segments).map(Arc::new);
        if clause.num_positions() < SHORTEST {
            read()
        } else {
            self.lists.get_or_insert_with(&key(shard, clause, None), read)
        }
    }

    /// Where a shard's documents start; `None` where nothing is kept, as reading them for one query does not pay.
    pub(crate) fn documents(&self, shard: &Shard) -> Result<Option<Arc<Positions>>> {
        if self.losses.is_none() {
            return Ok(None);
        }
        let no_clause = (shard.number, Box::default(), None);
        self.lists.get_or_insert_with(&no_clause, || shard.document_starts().map(Arc::new)).map(Some)
    }

    /// A clause's zones ([`crate::zones`]), if they are kept.
    pub(crate) fn known_zones(
        &self,
        shard: &Shard,
        clause: &ShardClause,
        zones: (Kind, u64),
    ) -> Option<Arc<Positions>> {
        self.lists.get(&key(shard, clause, Some(zones)))
    }

    /// Keeps a clause's zones.
    pub(crate) fn keep_zones(&self, shard: &Shard, clause: &ShardClause, zones: (Kind, u64), bounds: Arc<Positions>) {
        self.lists.insert(key(shard, clause, Some(zones)), bounds);
    }

    /// What queries have lost so far by not sorting a clause, or by not having these zones of it; `None` where that will
    /// never be made good.
    pub(crate) fn losses(
        &self,
        shard: &Shard,
        clause: &ShardClause,
        zones: Option<(Kind, u64)>,
    ) -> Option<Arc<AtomicU64>> {
        let losses = self.losses.as_ref().filter(|_| clause.num_positions() >= SHORTEST)?;
        losses.get_or_insert_with(&key(shard, clause, zones), || Ok::<_, Infallible>(Arc::default())).ok()
    }
}

fn key(shard: &Shard, clause: &ShardClause, zones: Option<(Kind, u64)>) -> Key {
    (shard.number, clause.segments.as_slice().into(), zones)
}

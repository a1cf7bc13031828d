//! Where matches may start: the positions of the rarest clause, block by block.

use std::sync::Arc;

use crate::error::Result;
use crate::files::shard::Shard;
use crate::query::clause::ShardClause;
use crate::query::join::MatchRange;
use crate::suffix::position_cache::PositionCache;
use crate::suffix::positions::Positions;

/// Fewer ranges are not worth sorting.
const MIN_SORTED: u64 = 256;
/// Ranges that go through the clauses together: few enough to stay in the first-level cache.
const MAX_BLOCK: usize = 1_024;

/// The order in which matches are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Any, and all of them. They are then taken as they lie in the text, which uses the
    /// processor's caches better.
    Any,
    /// That of the suffix array.
    Ranks,
    /// Any, and the search stops after this many.
    Enough(u64),
}

impl Order {
    pub(crate) fn enough(self) -> Option<u64> {
        if let Self::Enough(enough) = self { Some(enough) } else { None }
    }
}

/// The positions of the rarest clause.
pub(crate) struct Starts<'a> {
    shard: &'a Shard,
    clause: &'a ShardClause,
    /// The positions as they lie in the text; `None` where they are read in the order of the suffix
    /// array.
    sorted: Option<Arc<Positions>>,
    /// How many have been returned.
    done: usize,
    block: usize,
}

impl<'a> Starts<'a> {
    pub(crate) fn new(
        shard: &'a Shard,
        clause: &'a ShardClause,
        positions: &PositionCache,
        order: Order,
    ) -> Result<Self> {
        let sorted = match order {
            Order::Any if clause.num_positions() > MIN_SORTED => {
                Some(positions.get_or_read(shard, &clause.rank_ranges)?)
            }
            Order::Any | Order::Ranks => None,
            Order::Enough(_) => positions.get(shard, &clause.rank_ranges),
        };
        // Where every range is a match, the first block is all that is needed.
        let block =
            order.enough().map_or(MAX_BLOCK, |enough| enough.clamp(1, MAX_BLOCK as u64) as usize);
        Ok(Self { shard, clause, sorted, done: 0, block })
    }

    /// Fills an empty block; `false` where no positions are left.
    pub(crate) fn next_block(&mut self, ranges: &mut Vec<MatchRange>) -> Result<bool> {
        let end = (self.clause.num_positions() as usize).min(self.done + self.block);
        match &self.sorted {
            Some(positions) => {
                ranges.extend((self.done..end).map(|index| MatchRange::at(positions.get(index))))
            }
            None => {
                for rank in self.clause.ranks().skip(self.done).take(end - self.done) {
                    ranges.push(MatchRange::at(self.shard.position(rank)?));
                }
            }
        }
        self.done = end;
        self.block = MAX_BLOCK.min(2 * self.block);
        Ok(!ranges.is_empty())
    }
}

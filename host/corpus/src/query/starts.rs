//! Candidates for matches: the positions of the rarest clause, block by block.

use std::sync::Arc;

use crate::error::Result;
use crate::files::shard::Shard;
use crate::query::clause::ShardClause;
use crate::query::join::MatchRange;
use crate::suffix::position_cache::PositionCache;
use crate::suffix::positions::PositionList;

/// Number of positions up to which sorting costs more than it saves.
const MIN_SORTED: u64 = 256;
/// Largest number of ranges in a block: few enough to stay in the first-level cache.
const MAX_BLOCK: usize = 1_024;

/// The order and number of the matches that are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MatchOrder {
    /// All matches, in any order. They are visited in the order of the text, which uses the
    /// processor's caches better.
    Any,
    /// All matches, in the order of the suffix array.
    Ranks,
    /// This many matches, in any order.
    UpTo(u64),
}

/// The positions of the rarest clause.
pub(crate) struct MatchStarts<'a> {
    shard: &'a Shard,
    clause: &'a ShardClause,
    /// Positions in the order of the text; `None` if they are read in the order of the suffix array.
    sorted: Option<Arc<PositionList>>,
    /// Number of positions returned so far.
    done: usize,
    /// Size of the next block.
    block: usize,
}

impl<'a> MatchStarts<'a> {
    pub(crate) fn new(
        shard: &'a Shard,
        clause: &'a ShardClause,
        positions: &PositionCache,
        order: MatchOrder,
    ) -> Result<Self> {
        let sorted = match order {
            MatchOrder::Any if clause.num_positions() > MIN_SORTED => {
                Some(positions.get_or_read(shard, &clause.rank_ranges)?)
            }
            MatchOrder::Any | MatchOrder::Ranks => None,
            MatchOrder::UpTo(_) => positions.get(shard, &clause.rank_ranges),
        };
        // With a limit, the first block suffices if every range is a match.
        let block = match order {
            MatchOrder::UpTo(limit) => limit.clamp(1, MAX_BLOCK as u64) as usize,
            MatchOrder::Any | MatchOrder::Ranks => MAX_BLOCK,
        };
        Ok(Self { shard, clause, sorted, done: 0, block })
    }

    /// Fills an empty block. Returns false if no positions are left.
    pub(crate) fn next_block(&mut self, ranges: &mut Vec<MatchRange>) -> Result<bool> {
        let end = (self.clause.num_positions() as usize).min(self.done + self.block);
        match &self.sorted {
            Some(sorted) => {
                ranges.extend((self.done..end).map(|index| MatchRange::at(sorted.get(index))))
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

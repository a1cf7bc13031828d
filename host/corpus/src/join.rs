//! The rule by which a range takes in a further clause.
//!
//! Distances are measured between the positions where occurrences *start*; how long they are does not matter. The
//! distance is to the range so far, so a chain of clauses may span far more than the limit. A range that has an occurrence
//! within reach on both sides takes in both, even where the far one lies in the next document.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::cache::ListCache;
use crate::clause::ShardClause;
use crate::error::Result;
use crate::positions::Positions;
use crate::scan::Scanner;
use crate::shard::Shard;

/// What a match spans: the leftmost and the rightmost occurrence's first token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) left: u64,
    pub(crate) right: u64,
}

impl Range {
    pub(crate) fn at(position: u64) -> Self {
        Self { left: position, right: position }
    }

    /// The range with its neighbours taken in: the nearest occurrence before its right end, and the nearest at or after
    /// its left end, where they are within reach; and whether one of them is. Nothing here is worth a branch: in frequent
    /// clauses it would be mispredicted.
    pub(crate) fn with(self, before: Option<u64>, after: Option<u64>, reach: u64) -> (Self, bool) {
        let before = before.filter(|&position| position >= self.left.saturating_sub(reach));
        let after = after.filter(|&position| position <= self.right.saturating_add(reach));
        let longer =
            Self { left: self.left.min(before.unwrap_or(u64::MAX)), right: self.right.max(after.unwrap_or(0)) };
        (longer, before.is_some() | after.is_some())
    }
}

/// Finds the occurrences of one clause that are next to a range, by whichever way is cheaper.
///
/// Scanning the text around the range costs nothing beforehand, and little where the clause is frequent. Sorting all
/// positions of the clause costs much beforehand and makes each search cheap. Which is better depends on how many ranges
/// get this far. Where the caller knows that, the choice is made at once; otherwise it begins with scanning, and sorts
/// when the time lost by scanning reaches the price of sorting, which is never worse than twice the better choice. Where
/// lists are kept for later queries, what earlier ones have lost counts as well.
pub(crate) struct Neighbours<'a> {
    shard: &'a Shard,
    clause: &'a ShardClause,
    lists: &'a ListCache,
    reach: u64,
    finder: Finder<'a>,
}

enum Finder<'a> {
    Scan { scanner: Scanner<'a>, lost: u64, losses: Option<Arc<AtomicU64>> },
    List(Arc<Positions>),
}

/// What scanning for one term, to both sides, costs before it has looked at any token. The unit of these prices is the
/// time of looking at one token, about a tenth of a nanosecond.
const SCAN_COST: u64 = 250;
/// What a search in the sorted positions costs.
const SEARCH_COST: u64 = 50;
/// What reading and sorting one position costs.
const SORT_COST: u64 = 100;

impl<'a> Neighbours<'a> {
    /// `ranges` is the number of ranges that will come, where that is known.
    pub(crate) fn new(
        shard: &'a Shard,
        clause: &'a ShardClause,
        terms: &'a [Vec<u8>],
        lists: &'a ListCache,
        reach: u64,
        ranges: Option<u64>,
    ) -> Result<Self> {
        // On each side the whole window, or up to the next occurrence if they are spread evenly.
        let scan = scan_cost(clause) + 2 * reach.min(shard.num_tokens / clause.count.max(1));
        let finder = if let Some(list) = lists.known(shard, clause) {
            Finder::List(list)
        } else {
            let losses = lists.losses(shard, clause, None);
            let lost = losses.as_ref().map_or(0, |losses| losses.load(Relaxed));
            let will_lose = ranges.map_or(0, |ranges| ranges.saturating_mul(scan - SEARCH_COST));
            // A scan would also see the occurrences that were dropped from a sampled clause.
            if clause.sampled || lost.saturating_add(will_lose) > price_of_sorting(clause) {
                Finder::List(lists.list(shard, clause)?)
            } else {
                Finder::Scan { scanner: Scanner::new(shard, terms, &clause.segments), lost, losses }
            }
        };
        Ok(Self { shard, clause, lists, reach, finder })
    }

    /// Appends to `longer` each range with this clause taken in, if it is within reach.
    pub(crate) fn extend(&mut self, ranges: &[Range], longer: &mut Vec<Range>) -> Result<()> {
        let reach = self.reach;
        let mut ranges = ranges;
        while let Finder::Scan { scanner, lost, losses } = &mut self.finder {
            let Some((&range, rest)) = ranges.split_first() else {
                if let Some(losses) = losses {
                    losses.store(*lost, Relaxed);
                }
                return Ok(());
            };
            ranges = rest;
            let (before, seen_before) = scanner.last_in(range.left.saturating_sub(reach), range.right);
            let (after, seen_after) = scanner.first_in(range.left, range.right.saturating_add(reach).saturating_add(1));
            let (range, reaches) = range.with(before, after, reach);
            longer.extend(reaches.then_some(range));
            *lost = lost.saturating_add(scan_cost(self.clause) + seen_before + seen_after - SEARCH_COST);
            if *lost > price_of_sorting(self.clause) {
                if let Some(losses) = losses {
                    losses.store(0, Relaxed);
                }
                self.finder = Finder::List(self.lists.list(self.shard, self.clause)?);
            }
        }
        if let Finder::List(list) = &self.finder {
            let mut length = longer.len();
            longer.resize(length + ranges.len(), Range::at(0));
            list.around(ranges, |range, before, after| {
                let reaches;
                (longer[length], reaches) = range.with(before, after, reach);
                length += usize::from(reaches);
            });
            longer.truncate(length);
        }
        Ok(())
    }
}

fn scan_cost(clause: &ShardClause) -> u64 {
    SCAN_COST * clause.segments.len() as u64
}

fn price_of_sorting(clause: &ShardClause) -> u64 {
    clause.count.saturating_mul(SORT_COST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_takes_in_both_neighbours_within_reach() {
        let range = Range { left: 10, right: 12 };
        assert_eq!(range.with(Some(7), Some(15), 3), (Range { left: 7, right: 15 }, true));
        assert_eq!(range.with(Some(11), None, 3), (range, true));
        assert_eq!(range.with(None, Some(15), 3), (Range { left: 10, right: 15 }, true));
        assert_eq!(range.with(Some(6), Some(15), 3), (Range { left: 10, right: 15 }, true));
        assert_eq!(range.with(Some(6), Some(16), 3), (range, false));
        assert_eq!(range.with(None, None, 3), (range, false));
    }
}

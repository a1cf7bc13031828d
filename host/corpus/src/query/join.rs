//! The join of a range with the occurrences of a further clause.
//!
//! Distances are measured between the *starts* of occurrences; their lengths do not matter.
//!
//! In [`Mode::Compatible`](crate::Mode::Compatible) the join is the [`MatchRange`] extended to the
//! clause, as in the official engine. The distance is to the range so far, so a chain of clauses may
//! span far more than `max_diff_tokens`. A range with a near occurrence on both sides is extended to
//! both, even if one of them is in the next document; the range then crosses a boundary and is lost.
//!
//! In [`Mode::Exact`](crate::Mode::Exact) a range is one occurrence of the counted clause, and stays
//! it. The join is a [`Neighbourhood`], whose sides are compared with the document separately.

use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;
use crate::files::shard::Shard;
use crate::query::clause::ShardClause;
use crate::query::scan::Scanner;
use crate::suffix::position_cache::PositionCache;
use crate::suffix::positions::PositionList;

/// The range of a match: the first tokens of its leftmost and rightmost occurrences.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MatchRange {
    pub(crate) left: u64,
    pub(crate) right: u64,
}

impl MatchRange {
    pub(crate) fn at(position: u64) -> Self {
        Self { left: position, right: position }
    }

    /// Returns the positions where a near occurrence may start.
    fn window(self, max_diff_tokens: u64) -> Range<u64> {
        self.left.saturating_sub(max_diff_tokens)
            ..self.right.saturating_add(max_diff_tokens).saturating_add(1)
    }
}

/// An occurrence of the counted clause with its neighbours: the nearest occurrences of another
/// clause, in any document.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Neighbourhood {
    pub(crate) position: u64,
    /// Start of the nearest occurrence before `position`, plus 1; 0 if none is near.
    pub(crate) before_end: u64,
    /// Nearest occurrence at `position` or after it; `u64::MAX` if none is near.
    pub(crate) after: u64,
}

/// A range that is joined with the near occurrences of a clause.
pub(crate) trait Joined: Copy + Default {
    /// Joins a range with the nearest occurrence before its right end, and the nearest at or after
    /// its left end; `None`: there is none near enough. It has no branch, which frequent clauses
    /// would mispredict.
    fn join(range: MatchRange, before: Option<u64>, after: Option<u64>) -> Self;
}

impl Joined for MatchRange {
    fn join(range: MatchRange, before: Option<u64>, after: Option<u64>) -> Self {
        Self {
            left: range.left.min(before.unwrap_or(u64::MAX)),
            right: range.right.max(after.unwrap_or(0)),
        }
    }
}

impl Joined for Neighbourhood {
    fn join(range: MatchRange, before: Option<u64>, after: Option<u64>) -> Self {
        Self {
            position: range.left,
            before_end: before.map_or(0, |before| before + 1),
            after: after.unwrap_or(u64::MAX),
        }
    }
}

/// Joins a range with its neighbours that are at most `max_diff_tokens` away. Returns the result,
/// and true if a neighbour is near enough.
fn join_near<J: Joined>(
    range: MatchRange,
    before: Option<u64>,
    after: Option<u64>,
    max_diff_tokens: u64,
) -> (J, bool) {
    let before = before.filter(|&position| position >= range.left.saturating_sub(max_diff_tokens));
    let after = after.filter(|&position| position <= range.right.saturating_add(max_diff_tokens));
    (J::join(range, before, after), before.is_some() | after.is_some())
}

/// A finder of a clause's occurrences next to a range. It scans the text around the range, or
/// searches the clause's sorted positions.
///
/// Scanning needs no preparation. Sorting all positions of the clause is expensive and makes each
/// search cheap. The better choice depends on the number of ranges, which is not known. So scanning
/// comes first, and once it has cost as much as sorting would, the positions are sorted: the total
/// is at most twice the cost of the better choice. If the text is not in memory, the cost is the
/// number of pages that each choice reads.
pub(crate) struct Neighbours<'a> {
    shard: &'a Shard,
    clause: &'a ShardClause,
    positions: &'a PositionCache,
    max_diff_tokens: u64,
    finder: Finder<'a>,
}

enum Finder<'a> {
    Scan {
        scanner: Scanner<'a>,
        /// Cost of all scans so far.
        cost: u64,
        /// Upper bound of the pages that cold scans have read.
        pages: u64,
    },
    Search(Arc<PositionList>),
}

/// Fixed cost of a scan for one term, to both sides. Each token read costs 1, about 0.1 ns.
const SCAN_COST: u64 = 200;
/// Cost of reading and sorting one position.
const SORT_COST: u64 = 100;
/// Largest window that is read ahead, pages: scans of larger windows mostly end early.
const MAX_PAGES_AHEAD: u64 = 4;
/// Distance from one range to the next whose text is tested for being in memory. Each test is a
/// system call. With 256, a cold pair of the scale bench reads 6 % more pages.
const RESIDENCY_STRIDE: usize = 64;

impl<'a> Neighbours<'a> {
    pub(crate) fn new(
        shard: &'a Shard,
        clause: &'a ShardClause,
        terms: &'a [Vec<u8>],
        positions: &'a PositionCache,
        max_diff_tokens: u64,
    ) -> Result<Self> {
        let finder = if clause.sampled {
            // A scan would also find occurrences that are not in the sample.
            Finder::Search(positions.get_or_read(shard, &clause.rank_ranges)?)
        } else if let Some(sorted) = positions.get(shard, &clause.rank_ranges) {
            Finder::Search(sorted)
        } else {
            Finder::Scan {
                scanner: Scanner::new(shard, terms, &clause.rank_ranges),
                cost: 0,
                pages: 0,
            }
        };
        Ok(Self { shard, clause, positions, max_diff_tokens, finder })
    }

    /// Appends to `joined` the join of each range that has this clause near enough.
    pub(crate) fn join<J: Joined>(
        &mut self,
        ranges: &[MatchRange],
        joined: &mut Vec<J>,
    ) -> Result<()> {
        let num_scanned = self.scan(ranges, joined)?;
        if let Finder::Search(sorted) = &self.finder {
            search(sorted, &ranges[num_scanned..], self.max_diff_tokens, joined);
        }
        Ok(())
    }

    /// Joins ranges by scanning. Returns the number of ranges that were scanned: all, or those before
    /// sorting became due.
    fn scan<J: Joined>(&mut self, ranges: &[MatchRange], joined: &mut Vec<J>) -> Result<usize> {
        let Finder::Scan { scanner, cost, pages } = &mut self.finder else { return Ok(0) };
        let max_diff_tokens = self.max_diff_tokens;
        let cost_per_scan = SCAN_COST * self.clause.rank_ranges.len() as u64;
        let sorting_cost = SORT_COST.saturating_mul(self.clause.count);
        // Sorting would become due before the last range.
        let mut sort_now = cost.saturating_add(cost_per_scan * ranges.len() as u64) > sorting_cost;
        if !sort_now && ranges.len() > 1 && is_cold(self.shard, ranges) {
            let pages_per_scan = self.shard.pages_of_text(max_diff_tokens.saturating_mul(2));
            *pages = pages.saturating_add(pages_per_scan.saturating_mul(ranges.len() as u64));
            sort_now = self.shard.pages_of_ranks(self.clause.count) < *pages;
            if !sort_now && pages_per_scan <= MAX_PAGES_AHEAD {
                for range in ranges {
                    self.shard.will_read_text(range.window(max_diff_tokens));
                }
            }
        }
        for (index, range) in ranges.iter().enumerate() {
            if sort_now || *cost > sorting_cost {
                let sorted = self.positions.get_or_read(self.shard, &self.clause.rank_ranges)?;
                self.finder = Finder::Search(sorted);
                return Ok(index);
            }
            let Range { start, end } = range.window(max_diff_tokens);
            let (before, num_read_before) = scanner.last_in(start, range.right);
            let (after, num_read_after) = scanner.first_in(range.left, end);
            *cost = cost.saturating_add(cost_per_scan + num_read_before + num_read_after);
            let (join, is_near): (J, bool) = join_near(*range, before, after, max_diff_tokens);
            joined.extend(is_near.then_some(join));
        }
        Ok(ranges.len())
    }
}

/// True if the text of most ranges is not in memory, judged by a sample of them.
fn is_cold(shard: &Shard, ranges: &[MatchRange]) -> bool {
    let mut num_tested = 0;
    let mut num_in_memory = 0;
    for range in ranges.iter().step_by(RESIDENCY_STRIDE) {
        num_tested += 1;
        num_in_memory += usize::from(shard.text_is_in_memory(range.left));
    }
    2 * num_in_memory < num_tested
}

/// Joins ranges by searching the clause's positions, without a branch that depends on the data.
fn search<J: Joined>(
    sorted: &PositionList,
    ranges: &[MatchRange],
    max_diff_tokens: u64,
    joined: &mut Vec<J>,
) {
    let mut length = joined.len();
    joined.resize(length + ranges.len(), J::default());
    let mut remaining = ranges.iter();
    let ends = ranges.iter().map(|range| (range.left, range.right));
    sorted.for_each_neighbours(ends, |before, after| {
        let Some(range) = remaining.next() else { return };
        // Every join is written; one that is not near is overwritten by the next.
        let is_near;
        (joined[length], is_near) = join_near(*range, before, after, max_diff_tokens);
        length += usize::from(is_near);
    });
    joined.truncate(length);
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: MatchRange = MatchRange { left: 10, right: 12 };

    #[test]
    fn match_range_extends_to_near_neighbours() {
        let join = |before, after| join_near::<MatchRange>(RANGE, before, after, 3);
        assert_eq!(join(Some(7), Some(15)), (MatchRange { left: 7, right: 15 }, true));
        assert_eq!(join(Some(11), None), (RANGE, true));
        assert_eq!(join(None, Some(15)), (MatchRange { left: 10, right: 15 }, true));
        assert_eq!(join(Some(6), Some(15)), (MatchRange { left: 10, right: 15 }, true));
        assert_eq!(join(Some(6), Some(16)), (RANGE, false));
        assert_eq!(join(None, None), (RANGE, false));
    }

    #[test]
    fn neighbourhood_keeps_its_position() {
        let join = |before, after| join_near::<Neighbourhood>(MatchRange::at(10), before, after, 3);
        let expected = |before_end, after| Neighbourhood { position: 10, before_end, after };
        assert_eq!(join(Some(7), Some(14)), (expected(8, u64::MAX), true));
        assert_eq!(join(Some(6), Some(10)), (expected(0, 10), true));
        assert_eq!(join(Some(6), Some(14)), (expected(0, u64::MAX), false));
    }
}

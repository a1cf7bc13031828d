//! The rule by which a range takes in a further clause.
//!
//! Distances are measured between the positions where occurrences *start*; how long they are does
//! not matter. The distance is to the range so far, so a chain of clauses may span far more than
//! the limit. A range that has an occurrence near enough on both sides takes in both, even where
//! one of them lies in the next document.

use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;
use crate::files::shard::Shard;
use crate::query::clause::ShardClause;
use crate::query::scan::Scanner;
use crate::suffix::position_cache::PositionCache;
use crate::suffix::positions::Positions;

/// What a match spans: the first tokens of its leftmost and of its rightmost occurrence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MatchRange {
    pub(crate) left: u64,
    pub(crate) right: u64,
}

impl MatchRange {
    pub(crate) fn at(position: u64) -> Self {
        Self { left: position, right: position }
    }

    /// The range with its neighbours taken in: the nearest occurrence before its right end, and the
    /// nearest at or after its left end, where they are at most `max_diff_tokens` away; and whether
    /// one of them is. There is no branch here: in frequent clauses it would be mispredicted.
    pub(crate) fn with(
        self,
        before: Option<u64>,
        after: Option<u64>,
        max_diff_tokens: u64,
    ) -> (Self, bool) {
        let before =
            before.filter(|&position| position >= self.left.saturating_sub(max_diff_tokens));
        let after =
            after.filter(|&position| position <= self.right.saturating_add(max_diff_tokens));
        let longer = Self {
            left: self.left.min(before.unwrap_or(u64::MAX)),
            right: self.right.max(after.unwrap_or(0)),
        };
        (longer, before.is_some() | after.is_some())
    }
}

/// Finds the occurrences of one clause that are next to a range, by scanning the text around it or
/// by searching the clause's sorted positions.
///
/// Scanning needs no preparation. Sorting all positions of the clause takes a while and makes each
/// search cheap. Which is better depends on how many ranges get this far, and that is not known. So
/// scanning comes first, and when it has cost as much as sorting would, the positions are sorted:
/// never more than twice the cost of the better choice. Where the text is not in memory, what
/// counts is how many pages each choice reads.
pub(crate) struct Neighbours<'a> {
    shard: &'a Shard,
    clause: &'a ShardClause,
    positions: &'a PositionCache,
    max_diff_tokens: u64,
    finder: Finder<'a>,
}

enum Finder<'a> {
    /// `cost` is that of all scans so far; `pages` are those that cold scans have read, at most.
    Scan {
        scanner: Scanner<'a>,
        cost: u64,
        pages: u64,
    },
    Search(Arc<Positions>),
}

/// The cost of a scan for one term, to both sides, besides one for each token read. One is about
/// 0.1 ns.
const SCAN_COST: u64 = 200;
/// The cost of reading and sorting one position.
const SORT_COST: u64 = 100;
/// Pages of a window that is read ahead, at most: scans of larger windows mostly end early.
const MAX_PAGES_AHEAD: u64 = 4;
/// Of how many ranges one is looked at to tell whether the text is in memory. Each look is a call
/// of the system. With 256 a cold pair of the scale bench reads 6 % more pages.
const LOOK_EVERY: usize = 64;

impl<'a> Neighbours<'a> {
    pub(crate) fn new(
        shard: &'a Shard,
        clause: &'a ShardClause,
        terms: &'a [Vec<u8>],
        positions: &'a PositionCache,
        max_diff_tokens: u64,
    ) -> Result<Self> {
        let finder = if clause.sampled {
            // A scan would also find the occurrences that were dropped.
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

    /// Appends to `longer` each range with this clause taken in, if the clause is near enough.
    pub(crate) fn extend(
        &mut self,
        ranges: &[MatchRange],
        longer: &mut Vec<MatchRange>,
    ) -> Result<()> {
        let scanned = self.scan(ranges, longer)?;
        if let Finder::Search(sorted) = &self.finder {
            search(sorted, &ranges[scanned..], self.max_diff_tokens, longer);
        }
        Ok(())
    }

    /// Extends ranges by scanning, and returns how many: all of them, or those until sorting is
    /// due.
    fn scan(&mut self, ranges: &[MatchRange], longer: &mut Vec<MatchRange>) -> Result<usize> {
        let Finder::Scan { scanner, cost, pages } = &mut self.finder else { return Ok(0) };
        let max_diff_tokens = self.max_diff_tokens;
        let window = |range: &MatchRange| {
            range.left.saturating_sub(max_diff_tokens)
                ..range.right.saturating_add(max_diff_tokens).saturating_add(1)
        };
        let cost_per_scan = SCAN_COST * self.clause.rank_ranges.len() as u64;
        let sorting_cost = SORT_COST.saturating_mul(self.clause.count);
        // Sorting would become due before the last range.
        let mut sort_now = cost.saturating_add(cost_per_scan * ranges.len() as u64) > sorting_cost;
        if !sort_now && ranges.len() > 1 && is_cold(self.shard, ranges) {
            let pages_per_scan = self.shard.pages_of_text(max_diff_tokens.saturating_mul(2));
            *pages = pages.saturating_add(pages_per_scan.saturating_mul(ranges.len() as u64));
            sort_now = self.shard.pages_of_ranks(self.clause.count) < *pages;
            if !sort_now && pages_per_scan <= MAX_PAGES_AHEAD {
                ranges.iter().for_each(|range| self.shard.will_read_text(window(range)));
            }
        }
        for (index, range) in ranges.iter().enumerate() {
            if sort_now || *cost > sorting_cost {
                let sorted = self.positions.get_or_read(self.shard, &self.clause.rank_ranges)?;
                self.finder = Finder::Search(sorted);
                return Ok(index);
            }
            let Range { start, end } = window(range);
            let (before, read_before) = scanner.last_in(start, range.right);
            let (after, read_after) = scanner.first_in(range.left, end);
            *cost = cost.saturating_add(cost_per_scan + read_before + read_after);
            let (range, is_near) = range.with(before, after, max_diff_tokens);
            longer.extend(is_near.then_some(range));
        }
        Ok(ranges.len())
    }
}

/// Whether the text around most of the ranges must be read from the disk, as far as a few of them
/// tell.
fn is_cold(shard: &Shard, ranges: &[MatchRange]) -> bool {
    let looked_at = || ranges.iter().step_by(LOOK_EVERY);
    let in_memory = looked_at().filter(|range| shard.text_is_in_memory(range.left)).count();
    2 * in_memory < looked_at().count()
}

/// Extends ranges by searching the clause's positions, without a branch that depends on what is
/// found.
fn search(
    sorted: &Positions,
    ranges: &[MatchRange],
    max_diff_tokens: u64,
    longer: &mut Vec<MatchRange>,
) {
    let mut length = longer.len();
    longer.resize(length + ranges.len(), MatchRange::at(0));
    let mut next = ranges.iter();
    sorted.around(ranges.iter().map(|range| (range.left, range.right)), |before, after| {
        let Some(range) = next.next() else { return };
        let is_near;
        (longer[length], is_near) = range.with(before, after, max_diff_tokens);
        length += usize::from(is_near);
    });
    longer.truncate(length);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn match_range_extends_to_near_neighbours() {
        let range = MatchRange { left: 10, right: 12 };
        assert_eq!(range.with(Some(7), Some(15), 3), (MatchRange { left: 7, right: 15 }, true));
        assert_eq!(range.with(Some(11), None, 3), (range, true));
        assert_eq!(range.with(None, Some(15), 3), (MatchRange { left: 10, right: 15 }, true));
        assert_eq!(range.with(Some(6), Some(15), 3), (MatchRange { left: 10, right: 15 }, true));
        assert_eq!(range.with(Some(6), Some(16), 3), (range, false));
        assert_eq!(range.with(None, None, 3), (range, false));
    }
}

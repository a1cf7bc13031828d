//! The rule by which a range takes in a further clause.
//!
//! Distances are measured between the positions where occurrences *start*; how long they are does not matter. The
//! distance is to the range so far, so a chain of clauses may span far more than the limit. A range that has an occurrence
//! within reach on both sides takes in both, even where the far one lies in the next document.

use crate::clause::ShardClause;
use crate::cnf::Mode;
use crate::error::Result;
use crate::scan::{self, Scanner};
use crate::shard::Shard;
use crate::sorted::Sorted;

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
    /// its left end, both within reach. `None` where neither is.
    fn with(self, before: Option<u64>, after: Option<u64>) -> Option<Self> {
        (before.is_some() || after.is_some()).then(|| Self {
            left: before.map_or(self.left, |position| position.min(self.left)),
            right: after.map_or(self.right, |position| position.max(self.right)),
        })
    }

    /// Whether a document begins inside the range; one that begins with the last occurrence's token does not.
    pub(crate) fn crosses_documents(self, shard: &Shard, mode: Mode) -> bool {
        let width = shard.width.bytes();
        let inside = &shard.stream()[self.left as usize * width..self.right as usize * width];
        match mode {
            Mode::Compatible => scan::holds_ones(inside, width),
            Mode::Exact => scan::holds_separator(inside, shard.width),
        }
    }
}

/// Finds the occurrences of one clause that are next to a range, by whichever way is cheaper.
///
/// Scanning the text around the range costs nothing beforehand, and little where the clause is frequent. Sorting all
/// positions of the clause costs much beforehand and makes each search cheap. Which is better depends on how many ranges
/// get this far. Where the caller knows that, the choice is made at once; otherwise it begins with scanning, and sorts
/// when the time lost by scanning reaches the price of sorting, which is never worse than twice the better choice.
pub(crate) struct Neighbours<'a> {
    shard: &'a Shard,
    clause: &'a ShardClause,
    reach: u64,
    finder: Finder<'a>,
}

enum Finder<'a> {
    Scan { scanner: Scanner<'a>, lost: u64 },
    Sorted(Sorted),
}

/// What one scan costs before it has looked at any token. The unit of these prices is the time of looking at one token,
/// about a tenth of a nanosecond.
const SCAN_COST: u64 = 250;
/// What a search in the sorted positions costs.
const SEARCH_COST: u64 = 100;
/// What reading and sorting one position costs.
const SORT_COST: u64 = 100;

impl<'a> Neighbours<'a> {
    /// `ranges` is the number of ranges that will come, where that is known.
    pub(crate) fn new(
        shard: &'a Shard,
        clause: &'a ShardClause,
        terms: &'a [Vec<u8>],
        reach: u64,
        ranges: Option<u64>,
    ) -> Result<Self> {
        // On each side the whole window, or up to the next occurrence if they are spread evenly.
        let seen = 2 * reach.min(shard.num_tokens / clause.count.max(1));
        let lost_by_scanning = ranges.map_or(0, |ranges| ranges.saturating_mul(lost_by_scan(seen)));
        // A scan would also see the occurrences that were dropped from a sampled clause.
        let finder = if clause.sampled || lost_by_scanning > price_of_sorting(clause) {
            Finder::Sorted(Sorted::read(shard, clause)?)
        } else {
            Finder::Scan { scanner: Scanner::new(shard, terms, &clause.segments)?, lost: 0 }
        };
        Ok(Self { shard, clause, reach, finder })
    }

    /// The range with this clause taken in, if it is within reach.
    pub(crate) fn extend(&mut self, range: Range) -> Result<Option<Range>> {
        let Range { left, right } = range;
        let (nearest, farthest) = (left.saturating_sub(self.reach), right.saturating_add(self.reach));
        let (before, after) = match &mut self.finder {
            Finder::Scan { scanner, lost } => {
                let (before, seen_before) = scanner.last_in(nearest, right);
                let (after, seen_after) = scanner.first_in(left, farthest.saturating_add(1));
                *lost = lost.saturating_add(lost_by_scan(seen_before + seen_after));
                if *lost > price_of_sorting(self.clause) {
                    self.finder = Finder::Sorted(Sorted::read(self.shard, self.clause)?);
                }
                (before, after)
            }
            Finder::Sorted(sorted) => {
                let (before, after) = sorted.around(range);
                (before.filter(|&position| position >= nearest), after.filter(|&position| position <= farthest))
            }
        };
        Ok(range.with(before, after))
    }
}

/// How much longer a scan takes than a search in sorted positions would.
fn lost_by_scan(tokens_seen: u64) -> u64 {
    (SCAN_COST + tokens_seen).saturating_sub(SEARCH_COST)
}

fn price_of_sorting(clause: &ShardClause) -> u64 {
    clause.count.saturating_mul(SORT_COST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_takes_in_both_neighbours() {
        let range = Range { left: 10, right: 12 };
        assert_eq!(range.with(Some(7), Some(15)), Some(Range { left: 7, right: 15 }));
        assert_eq!(range.with(Some(11), None), Some(range));
        assert_eq!(range.with(None, Some(20)), Some(Range { left: 10, right: 20 }));
        assert_eq!(range.with(None, None), None);
    }
}

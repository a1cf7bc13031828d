//! The rule by which a range takes in a further clause.
//!
//! Distances are measured between the positions where occurrences *start*; how long they are does not matter. The
//! distance is to the range so far, so a chain of clauses may span far more than the limit. A range that has an occurrence
//! within reach on both sides takes in both, even where the far one lies in the next document.

use crate::clause::ShardClause;
use crate::cnf::Mode;
use crate::error::Result;
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
            Mode::Compatible => holds_separator_bytes(inside, width),
            Mode::Exact => inside.chunks_exact(width).any(|token| token.iter().all(|&byte| byte == 0xFF)),
        }
    }
}

/// Whether `width` adjacent FF bytes occur at any alignment. The official engine looks at bytes, so a token that ends in
/// FF before one that begins with FF is a boundary to it (only vocabularies above 65,280 have such tokens).
fn holds_separator_bytes(bytes: &[u8], width: usize) -> bool {
    let mut run = 0;
    bytes.iter().any(|&byte| {
        run = if byte == 0xFF { run + 1 } else { 0 };
        run == width
    })
}

/// Finds the occurrences of one clause that are next to a range, by whichever way is cheaper.
///
/// Scanning the text around the range costs nothing beforehand, and little where the clause is frequent. Sorting all
/// positions of the clause costs much beforehand and makes each search cheap. Which is better depends on how many ranges
/// get this far, which nobody knows; so it begins with scanning and sorts when the time lost by scanning reaches the
/// price of sorting. That is never worse than twice the better choice, and needs no estimate that can be wrong.
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

/// What a search in a sorted list costs, in tokens that could be scanned in the same time.
const SEARCH_COST: u64 = 512;
/// What reading and sorting one position costs, in the same unit.
const SORT_COST: u64 = 192;

impl<'a> Neighbours<'a> {
    pub(crate) fn new(shard: &'a Shard, clause: &'a ShardClause, terms: &'a [Vec<u8>], reach: u64) -> Result<Self> {
        // A scan would also see the occurrences that were dropped from a sampled clause.
        let finder = if clause.sampled {
            Finder::Sorted(Sorted::read(shard, clause)?)
        } else {
            Finder::Scan { scanner: Scanner::new(shard, terms, &clause.segments)?, lost: 0 }
        };
        Ok(Self { shard, clause, reach, finder })
    }

    /// The range with this clause taken in, if it is within reach.
    pub(crate) fn extend(&mut self, range: Range) -> Result<Option<Range>> {
        let Range { left, right } = range;
        let farthest = (left.saturating_sub(self.reach), right.saturating_add(self.reach));
        if let Finder::Scan { scanner, lost } = &mut self.finder {
            if *lost < self.clause.count.saturating_mul(SORT_COST) {
                let (before, seen) = scanner.last_in(farthest.0, right);
                let (after, seen_after) = scanner.first_in(left, farthest.1.saturating_add(1));
                *lost += (seen + seen_after).saturating_sub(SEARCH_COST);
                return Ok(range.with(before, after));
            }
            self.finder = Finder::Sorted(Sorted::read(self.shard, self.clause)?);
        }
        let Finder::Sorted(sorted) = &self.finder else { unreachable!("the scanner was replaced above") };
        let (before, after) = sorted.around(range);
        let before = before.filter(|&position| position >= farthest.0);
        let after = after.filter(|&position| position <= farthest.1);
        Ok(range.with(before, after))
    }
}

/// All positions of a clause, ascending; four bytes each where the shard allows it.
enum Sorted {
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
}

impl Sorted {
    fn read(shard: &Shard, clause: &ShardClause) -> Result<Self> {
        fn collect<T: Ord>(shard: &Shard, clause: &ShardClause, narrow: impl Fn(u64) -> T) -> Result<Vec<T>> {
            let mut positions = Vec::with_capacity(clause.num_positions() as usize);
            for rank in clause.ranks() {
                positions.push(narrow(shard.position(rank)?));
            }
            positions.sort_unstable();
            Ok(positions)
        }
        if shard.num_tokens <= 1 << 32 {
            Ok(Self::Narrow(collect(shard, clause, |position| position as u32)?))
        } else {
            Ok(Self::Wide(collect(shard, clause, |position| position)?))
        }
    }

    /// The last position before the range's right end, and the first at or after its left end.
    fn around(&self, range: Range) -> (Option<u64>, Option<u64>) {
        fn search<T: Copy + Into<u64>>(positions: &[T], range: Range) -> (Option<u64>, Option<u64>) {
            let after = positions.partition_point(|&position| position.into() < range.left);
            // The first range is one position long, so that the second search is mostly not needed.
            let beyond = match positions.get(after) {
                Some(&position) if position.into() < range.right => {
                    after + positions[after..].partition_point(|&position| position.into() < range.right)
                }
                _ => after,
            };
            let at = |index: usize| positions.get(index).map(|&position| position.into());
            (beyond.checked_sub(1).and_then(at), at(after))
        }
        match self {
            Self::Narrow(positions) => search(positions, range),
            Self::Wide(positions) => search(positions, range),
        }
    }
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

    #[test]
    fn neighbours_are_strictly_before_the_right_end_and_not_before_the_left_one() {
        let sorted = Sorted::Narrow(vec![5, 9, 10, 10, 14]);
        assert_eq!(sorted.around(Range::at(10)), (Some(9), Some(10)));
        assert_eq!(sorted.around(Range { left: 6, right: 11 }), (Some(10), Some(9)));
        assert_eq!(sorted.around(Range::at(15)), (Some(14), None));
        assert_eq!(Sorted::Wide(vec![5]).around(Range::at(5)), (None, Some(5)));
    }

    #[test]
    fn separator_bytes_count_at_any_alignment() {
        assert!(holds_separator_bytes(&[0x41, 0xFF, 0xFF, 0x12], 2));
        assert!(!holds_separator_bytes(&[0xFF, 0x00, 0xFF, 0x00], 2));
        assert!(!holds_separator_bytes(&[0xFF, 0xFF, 0xFF, 0x00], 4));
    }
}

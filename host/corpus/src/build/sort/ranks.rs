//! The rank of a suffix from after a block among the block's suffixes, one symbol at a time.
//!
//! The suffixes of the block that start with symbol `c` have consecutive ranks, in the order of the
//! text after the `c`. So the rank of `c·x` is the number of those whose continuation is smaller than
//! `x`. That needs the rank of `x` and the rank of every suffix's continuation: one ascending list
//! per symbol, searched in three steps that touch few cache lines.

use crate::build::sort::large;
use crate::build::sort::symbols::Symbol;
use crate::error::Result;

/// The ranks of a sorted block, prepared for searches.
pub(super) struct Ranks {
    /// First rank of the block's suffixes that start with each symbol.
    starts: Vec<u32>,
    /// Rank of each suffix's continuation: the suffix that starts one symbol later.
    continuations: Vec<u32>,
    /// Every 64th entry of `continuations`.
    fine: Vec<u32>,
    /// Every 4096th entry of `continuations`.
    coarse: Vec<u32>,
    last_symbol: u32,
    /// Rank that the text after the block would have in the block.
    rank_of_tail: u32,
    /// Rank of the suffix at the block's begin.
    pub(super) rank_of_begin: u32,
}

/// Binary logarithm of the distance from one entry of `fine` to the next.
const FINE: u32 = 6;
/// Binary logarithm of the distance from one entry of `coarse` to the next.
const COARSE: u32 = 12;

impl Ranks {
    /// Prepares a block. `suffixes` are the starts of its sorted suffixes, relative to its begin.
    pub(super) fn new<S: Symbol>(
        block: Vec<S>,
        num_symbols: u32,
        suffixes: impl Iterator<Item = Result<u32>>,
        rank_of_tail: u32,
    ) -> Result<Self> {
        let mut starts = vec![0; num_symbols as usize + 1];
        for symbol in &block {
            starts[symbol.number() as usize + 1] += 1;
        }
        for symbol in 0..num_symbols as usize {
            starts[symbol + 1] += starts[symbol];
        }
        let last_symbol = block.last().map_or(0, |symbol| symbol.number());

        // A counting sort of the ranks by the symbol before each suffix.
        let mut next = starts.clone();
        let mut continuations = large::zeros(block.len());
        let mut insert = |symbol: u32, rank: u32| {
            let index = &mut next[symbol as usize];
            continuations[*index as usize] = rank;
            *index += 1;
        };
        let mut rank_of_begin = 0;
        for (rank, suffix) in (0..).zip(suffixes) {
            if rank == rank_of_tail {
                insert(last_symbol, rank);
            }
            match suffix?.checked_sub(1) {
                Some(previous) => insert(block[previous as usize].number(), rank),
                None => rank_of_begin = rank,
            }
        }
        if rank_of_tail as usize == block.len() {
            insert(last_symbol, rank_of_tail);
        }
        drop(block); // before the samples are allocated
        let fine = continuations.iter().copied().step_by(1 << FINE).collect();
        let coarse = continuations.iter().copied().step_by(1 << COARSE).collect();
        Ok(Self { starts, continuations, fine, coarse, last_symbol, rank_of_tail, rank_of_begin })
    }

    /// Returns the number of suffixes in the block.
    pub(super) fn len(&self) -> usize {
        self.continuations.len()
    }

    /// Returns the number of the block's suffixes that are smaller than `symbol` followed by a suffix
    /// of this rank. `greater_than_tail` is true if the latter is greater than the text after the
    /// block.
    pub(super) fn rank_of(&self, symbol: u32, rank: u32, greater_than_tail: bool) -> u32 {
        let start = self.starts[symbol as usize];
        let end = self.starts[symbol as usize + 1];
        let first = self.first_at_least(start as usize, end as usize, rank);
        // The block's last suffix continues with the tail itself, so the rank alone does not decide
        // the order.
        let is_after_last =
            symbol == self.last_symbol && rank == self.rank_of_tail && greater_than_tail;
        first as u32 + u32::from(is_after_last)
    }

    /// Returns the first index in `start..end` with a continuation of at least `rank`, or `end`.
    fn first_at_least(&self, mut start: usize, mut end: usize, rank: u32) -> usize {
        for (shift, samples) in [(COARSE, &self.coarse), (FINE, &self.fine)] {
            if end - start > 1 << shift {
                let first = start.div_ceil(1 << shift);
                let last = end.div_ceil(1 << shift);
                let found = first + samples[first..last].partition_point(|&sample| sample < rank);
                if found < last {
                    end = found << shift;
                }
                if found > first {
                    start = ((found - 1) << shift) + 1;
                }
            }
        }
        start + self.continuations[start..end].partition_point(|&continuation| continuation < rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampled_rank_search_matches_plain_search() {
        // Three lists of very different lengths, with runs of equal numbers as no block has them.
        let lists = [20_000_usize, 3, 300].map(|len| (0..len).map(move |i| (i / 3 * 2) as u32));
        let continuations: Vec<u32> = lists.into_iter().flatten().collect();
        let every = |shift: u32| continuations.iter().copied().step_by(1 << shift).collect();
        let ranks = Ranks {
            starts: vec![0, 20_000, 20_003, 20_303],
            fine: every(FINE),
            coarse: every(COARSE),
            continuations,
            last_symbol: 1,
            rank_of_tail: 2,
            rank_of_begin: 0,
        };
        for list in ranks.starts.windows(2) {
            let (start, end) = (list[0] as usize, list[1] as usize);
            for rank in (0..14_000).step_by(7).chain([0, 1, 2, 198, 199, 200]) {
                let plain = start + ranks.continuations[start..end].partition_point(|&c| c < rank);
                assert_eq!(ranks.first_at_least(start, end, rank), plain);
            }
        }
        assert_eq!(
            (ranks.rank_of(1, 2, false), ranks.rank_of(1, 2, true), ranks.rank_of(0, 2, true)),
            (20_003, 20_004, 3)
        );
    }
}

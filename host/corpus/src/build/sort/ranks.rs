//! Where a suffix from after a block falls among the block's suffixes, one symbol at a time.
//!
//! The suffixes of the block that start with symbol `c` stand together, ordered by what follows the
//! `c`. So the rank of `c·x` is the number of those whose continuation is smaller than `x`, and
//! that only takes the rank of `x` and the rank of every suffix's continuation: one ascending list
//! per symbol, searched in three steps that touch few cache lines.

use crate::build::sort::large;
use crate::build::sort::symbols::Symbol;
use crate::error::Result;

pub(super) struct Ranks {
    /// By symbol: the first rank of the block's suffixes that start with it.
    starts: Vec<u32>,
    /// By rank: the rank of the suffix that starts one symbol later.
    continuations: Vec<u32>,
    /// Every 64th and every 4096th of them.
    fine: Vec<u32>,
    coarse: Vec<u32>,
    last_symbol: u32,
    /// The rank that the text after the block would have in the block.
    rank_of_tail: u32,
    /// The rank of the whole block's suffix.
    pub(super) rank_of_begin: u32,
}

const FINE: u32 = 6;
const COARSE: u32 = 12;

impl Ranks {
    /// `suffixes` are the starts of the block's suffixes in their order, counted from the block's
    /// begin.
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

        let mut next = starts.clone();
        let mut continuations = large::zeros(block.len());
        let mut place = |symbol: u32, rank: u32| {
            let next = &mut next[symbol as usize];
            continuations[*next as usize] = rank;
            *next += 1;
        };
        let mut rank_of_begin = 0;
        for (rank, suffix) in (0..).zip(suffixes) {
            if rank == rank_of_tail {
                place(last_symbol, rank);
            }
            match suffix?.checked_sub(1) {
                Some(before) => place(block[before as usize].number(), rank),
                None => rank_of_begin = rank,
            }
        }
        if rank_of_tail as usize == block.len() {
            place(last_symbol, rank_of_tail);
        }
        drop(block);
        let every = |shift: u32| continuations.iter().copied().step_by(1 << shift).collect();
        let (fine, coarse) = (every(FINE), every(COARSE));
        Ok(Self { starts, continuations, fine, coarse, last_symbol, rank_of_tail, rank_of_begin })
    }

    /// Suffixes in the block.
    pub(super) fn len(&self) -> usize {
        self.continuations.len()
    }

    /// How many of the block's suffixes are smaller than `symbol` followed by a suffix of this
    /// rank, which is greater than the text after the block or not.
    pub(super) fn before(&self, symbol: u32, rank: u32, greater_than_tail: bool) -> u32 {
        let (start, end) = (self.starts[symbol as usize], self.starts[symbol as usize + 1]);
        let found = self.first_at_least(start as usize, end as usize, rank);
        // The block's last suffix continues with the tail itself, of which the rank alone does not
        // tell the order.
        let last = symbol == self.last_symbol && rank == self.rank_of_tail && greater_than_tail;
        found as u32 + u32::from(last)
    }

    /// The first place from `start` on that holds at least `rank`; `end` where none before it does.
    fn first_at_least(&self, mut start: usize, mut end: usize, rank: u32) -> usize {
        for (shift, samples) in [(COARSE, &self.coarse), (FINE, &self.fine)] {
            if end - start > 1 << shift {
                let (first, last) = (start.div_ceil(1 << shift), end.div_ceil(1 << shift));
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
            (ranks.before(1, 2, false), ranks.before(1, 2, true), ranks.before(0, 2, true)),
            (20_003, 20_004, 3)
        );
    }
}

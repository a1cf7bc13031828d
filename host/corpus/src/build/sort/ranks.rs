//! The rank of a suffix from after a block among the block's suffixes, one symbol at a time.
//!
//! The suffixes of the block that start with symbol `c` have consecutive ranks, in the order of the
//! text after the `c`. So the rank of `c·x` is the number of those whose continuation is smaller than
//! `x`. That needs the rank of `x` and the rank of every suffix's continuation: one ascending list
//! per symbol. A list is searched from coarse to fine, and each level after the first reads one line of
//! the cache. The caller takes many searches through a level before the next, so that their reads of
//! memory overlap.

use std::ops::Range;

use crate::build::sort::large;
use crate::build::sort::symbols::Symbol;
use crate::error::Result;
use crate::files::system;

/// The ranks of a sorted block, prepared for searches.
pub(super) struct Ranks {
    /// First rank of the block's suffixes that start with each symbol.
    starts: Vec<u32>,
    num_suffixes: usize,
    /// Every 4096th of the continuations' ranks.
    coarse: Vec<u32>,
    /// Every 256th, every 16th, and every rank of a continuation. The continuation of a suffix is the
    /// suffix that starts one symbol later.
    levels: [Vec<Line>; NUM_LEVELS],
    last_symbol: u32,
    /// Rank that the text after the block would have in the block.
    rank_of_tail: u32,
    /// Rank of the suffix at the block's begin.
    pub(super) rank_of_begin: u32,
}

/// Sixteen numbers in one line of the cache.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Line([u32; LINE]);

const LINE: usize = 16;
/// Number of levels with one [`Line`] per search.
pub(super) const NUM_LEVELS: usize = 3;
/// Binary logarithm of the distance from one entry of a level to the next.
const LEVELS: [u32; NUM_LEVELS] = [8, 4, 0];
/// The same for `coarse`.
const COARSE: u32 = 12;

/// A search for a rank.
#[derive(Clone, Copy, Default)]
pub(super) struct RankSearch {
    rank: u32,
    /// Range of the continuations' indices with the result; equal after the last level.
    start: u32,
    end: u32,
    /// 1 if the block's last suffix is smaller, too, which its continuation's rank does not show.
    last_suffix: u32,
}

impl RankSearch {
    /// Returns the rank, after the last level.
    pub(super) fn result(&self) -> u32 {
        self.start + self.last_suffix
    }

    /// Returns the range of the entries of a level that are in this range.
    fn entries(&self, log_distance: u32) -> Range<usize> {
        let before_next = (1_usize << log_distance) - 1;
        (self.start as usize + before_next) >> log_distance
            ..(self.end as usize + before_next) >> log_distance
    }

    /// Narrows the range by the entries of a level in it, of which some are smaller than the rank.
    fn narrow(&mut self, log_distance: u32, entries: Range<usize>, num_smaller: usize) {
        let found = entries.start + num_smaller;
        if found < entries.end {
            self.end = (found << log_distance) as u32;
        }
        if num_smaller > 0 {
            self.start = (((found - 1) << log_distance) + 1) as u32;
        }
    }
}

impl Ranks {
    /// Prepares a block. `suffixes` are chunks of the starts of its sorted suffixes, relative to its
    /// begin.
    pub(super) fn new<S: Symbol>(
        block: Vec<S>,
        num_symbols: u32,
        suffixes: impl Iterator<Item = Result<Vec<u32>>>,
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
        let num_suffixes = block.len();
        let mut continuations = large::zeros::<Line>(num_suffixes.div_ceil(LINE));
        let mut insert = |symbol: u32, rank: u32| {
            let index = &mut next[symbol as usize];
            continuations[*index as usize / LINE].0[*index as usize % LINE] = rank;
            *index += 1;
        };
        let mut rank_of_begin = 0;
        let mut rank = 0;
        let mut symbols = Vec::new();
        for chunk in suffixes {
            let chunk = chunk?;
            // The reads of a chunk overlap. No symbol precedes the suffix at the begin.
            symbols.clear();
            symbols.extend(chunk.iter().map(|&suffix| block[suffix.saturating_sub(1) as usize]));
            for (suffix, symbol) in chunk.into_iter().zip(&symbols) {
                if rank == rank_of_tail {
                    insert(last_symbol, rank);
                }
                match suffix {
                    0 => rank_of_begin = rank,
                    _ => insert(symbol.number(), rank),
                }
                rank += 1;
            }
        }
        if rank_of_tail as usize == block.len() {
            insert(last_symbol, rank_of_tail);
        }
        drop(block); // before the samples are allocated
        Ok(Self {
            starts,
            num_suffixes,
            coarse: sample(&continuations, COARSE).collect(),
            levels: sample_levels(continuations),
            last_symbol,
            rank_of_tail,
            rank_of_begin,
        })
    }

    /// Returns the number of suffixes in the block.
    pub(super) fn len(&self) -> usize {
        self.num_suffixes
    }

    /// Starts a search for the number of the block's suffixes that are smaller than `symbol` followed
    /// by a suffix of this rank. `greater_than_tail` is true if the latter is greater than the text
    /// after the block. All levels have to follow, from 0 on.
    pub(super) fn search(&self, symbol: u32, rank: u32, greater_than_tail: bool) -> RankSearch {
        let start = self.starts[symbol as usize];
        let end = self.starts[symbol as usize + 1];
        // The block's last suffix continues with the tail itself, so the rank alone does not decide
        // the order.
        let is_after_last =
            symbol == self.last_symbol && rank == self.rank_of_tail && greater_than_tail;
        let mut search = RankSearch { rank, start, end, last_suffix: is_after_last.into() };
        let entries = search.entries(COARSE);
        let num_smaller = self.coarse[entries.clone()].partition_point(|&sample| sample < rank);
        search.narrow(COARSE, entries, num_smaller);
        self.prefetch(0, &search);
        search
    }

    /// Narrows a search to the range between two neighbouring entries of a level.
    pub(super) fn search_level(&self, level: usize, search: &mut RankSearch) {
        let entries = search.entries(LEVELS[level]);
        // The level above has left no range that reaches over a line's end.
        let Some(line) = self.levels[level].get(entries.start / LINE) else { return };
        let first = (entries.start % LINE) as u32;
        let len = entries.len() as u32;
        let mut num_smaller = 0;
        for i in 0..LINE as u32 {
            let is_in_range = i.wrapping_sub(first) < len;
            num_smaller += u32::from(is_in_range & (line.0[i as usize] < search.rank));
        }
        search.narrow(LEVELS[level], entries, num_smaller as usize);
        if level + 1 < NUM_LEVELS {
            self.prefetch(level + 1, search);
        }
    }

    fn prefetch(&self, level: usize, search: &RankSearch) {
        let entries = search.entries(LEVELS[level]);
        if let Some(line) = self.levels[level].get(entries.start / LINE) {
            system::prefetch(line);
        }
    }
}

/// Returns every number whose index is a multiple of the distance.
fn sample(lines: &[Line], log_distance: u32) -> impl Iterator<Item = u32> {
    (0..lines.len() * LINE)
        .step_by(1 << log_distance)
        .map(|index| lines[index / LINE].0[index % LINE])
}

/// Returns the lines of every level.
fn sample_levels(continuations: Vec<Line>) -> [Vec<Line>; NUM_LEVELS] {
    let sampled = |log_distance: u32| {
        let mut lines = large::zeros::<Line>(continuations.len().div_ceil(1 << log_distance));
        for (index, number) in sample(&continuations, log_distance).enumerate() {
            lines[index / LINE].0[index % LINE] = number;
        }
        lines
    };
    [sampled(LEVELS[0]), sampled(LEVELS[1]), continuations]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_by_levels_matches_plain_search() {
        // Lists of very different lengths, with runs of equal numbers as no block has them.
        let lists = [20_480_usize, 4_096, 20_000, 3, 4_077, 16, 300, 1];
        let continuations: Vec<u32> =
            lists.iter().flat_map(|&len| (0..len).map(|i| (i / 3 * 2) as u32)).collect();
        let mut starts = vec![0];
        for len in lists {
            starts.push(starts[starts.len() - 1] + len as u32);
        }
        let lines: Vec<Line> = continuations
            .chunks(LINE)
            .map(|chunk| {
                let mut line = Line::default();
                line.0[..chunk.len()].copy_from_slice(chunk);
                line
            })
            .collect();
        let ranks = Ranks {
            starts,
            num_suffixes: continuations.len(),
            coarse: sample(&lines, COARSE).collect(),
            levels: sample_levels(lines),
            last_symbol: 3,
            rank_of_tail: 2,
            rank_of_begin: 0,
        };
        let rank_of = |symbol, rank, greater_than_tail| {
            let mut search = ranks.search(symbol, rank, greater_than_tail);
            for level in 0..NUM_LEVELS {
                ranks.search_level(level, &mut search);
            }
            search.result()
        };
        for (symbol, list) in ranks.starts.windows(2).enumerate() {
            let (start, end) = (list[0] as usize, list[1] as usize);
            for rank in (0..14_000).step_by(7).chain([0, 1, 2, 198, 199, 200]) {
                let plain = start + continuations[start..end].partition_point(|&c| c < rank);
                assert_eq!(rank_of(symbol as u32, rank, false) as usize, plain);
            }
        }
        assert_eq!(
            (rank_of(3, 2, false), rank_of(3, 2, true), rank_of(2, 2, true)),
            (44_579, 44_580, 24_579)
        );
    }
}

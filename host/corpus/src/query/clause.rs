//! A clause in a shard: the ranks of its terms, and the official engine's sample of a frequent one.

use crate::error::Result;
use crate::query::cpp_uniform::CppUniform;
use crate::suffix::search::SuffixArray;
use crate::suffix::search::{RankRange, num_ranks};

/// The occurrences of a clause in a shard.
#[derive(Debug)]
pub(crate) struct ShardClause {
    /// Number of the clause in the query, from 0.
    pub(crate) number: usize,
    /// Ranks of each term's occurrences, after sampling.
    pub(crate) rank_ranges: Vec<RankRange>,
    /// Number of occurrences of all terms before sampling. A position where two terms begin counts
    /// twice, unless [`ShardClause::merge_terms`] was called.
    pub(crate) count: u64,
    /// Number of occurrences that each sampled one represents; 1 without sampling.
    pub(crate) factor: u64,
    /// True if only a sample of the occurrences is used.
    pub(crate) sampled: bool,
}

impl ShardClause {
    pub(crate) fn find(
        suffix_array: &SuffixArray,
        number: usize,
        terms: &[Vec<u8>],
    ) -> Result<Self> {
        let rank_ranges =
            terms.iter().map(|term| suffix_array.find(term)).collect::<Result<Vec<_>>>()?;
        let count = num_ranks(&rank_ranges);
        Ok(Self { number, rank_ranges, count, factor: 1, sampled: false })
    }

    /// Merges the terms that begin at the same positions, so that each position counts once. Two terms
    /// begin at one position only if one of them is a prefix of the other, whose ranks are then
    /// among its own.
    pub(crate) fn merge_terms(&mut self) {
        for number in 0..self.rank_ranges.len() {
            let range = self.rank_ranges[number];
            let mut others = self.rank_ranges.iter().enumerate();
            let is_covered = others.any(|(other_number, &other)| {
                other_number != number && other.start <= range.start && range.end <= other.end
            });
            if is_covered {
                self.rank_ranges[number].end = range.start;
            }
        }
        self.count = num_ranks(&self.rank_ranges);
    }

    /// Reduces the occurrences to a sample of about `cap`, as the official engine does: of every
    /// term, one run of consecutive ranks with a pseudo-random start. The generator is seeded again
    /// for each clause and shard.
    pub(crate) fn sample(&mut self, cap: u64) {
        if self.count <= cap {
            return;
        }
        let mut uniform = CppUniform::new();
        let mut num_sampled = 0;
        for range in &mut self.rank_ranges {
            let share = u128::from(range.len()) * u128::from(cap);
            // At most the range's length, as `cap` is below `count`.
            let length = share.div_ceil(u128::from(self.count)) as u64;
            range.start += uniform.draw(range.len() - length);
            range.end = range.start + length;
            num_sampled += length;
        }
        self.factor = self.count / num_sampled;
        self.sampled = true;
    }

    /// Returns the ranks of the occurrences after sampling, term by term.
    pub(crate) fn ranks(&self) -> impl Iterator<Item = u64> + '_ {
        self.rank_ranges.iter().flat_map(|range| range.ranks())
    }

    /// Returns the number of occurrences after sampling.
    pub(crate) fn num_positions(&self) -> u64 {
        num_ranks(&self.rank_ranges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clause(lengths: &[u64]) -> ShardClause {
        let rank_ranges =
            lengths.iter().map(|&length| RankRange { start: 1_000, end: 1_000 + length }).collect();
        ShardClause {
            number: 0,
            rank_ranges,
            count: lengths.iter().sum(),
            factor: 1,
            sampled: false,
        }
    }

    /// Start offsets and factors of the published wheel.
    #[test]
    fn clause_samples_match_official_engine() {
        for (length, cap, offset, factor) in [
            (39_306, 1, 17_563, 39_306),
            (39_306, 500, 17_340, 78),
            (664, 50, 274, 13),
            (1_000_001, 500_000, 223_443, 2),
        ] {
            let mut clause = clause(&[length]);
            clause.sample(cap);
            assert_eq!(
                clause.rank_ranges,
                [RankRange { start: 1_000 + offset, end: 1_000 + offset + cap }]
            );
            assert_eq!((clause.factor, clause.sampled), (factor, true));
        }
    }

    #[test]
    fn clause_sampling_draws_from_every_term() {
        let mut clause = clause(&[4_664, 174]); // film OR movie
        clause.sample(500);
        let samples: Vec<_> =
            clause.rank_ranges.iter().map(|range| (range.start - 1_000, range.len())).collect();
        assert_eq!(samples, [(1_868, 483), (120, 18)]);
        assert_eq!(clause.factor, 9);
    }

    #[test]
    fn merged_terms_share_no_position() {
        let range = |start, end| RankRange { start, end };
        // a, b, `a c`, a, `b d`, absent
        let rank_ranges =
            [(10, 20), (30, 40), (12, 15), (10, 20), (30, 40), (15, 15)].map(|(a, b)| range(a, b));
        let mut clause = ShardClause { rank_ranges: rank_ranges.to_vec(), ..clause(&[]) };
        clause.merge_terms();
        assert_eq!(clause.count, 20);
        let occurring: Vec<_> =
            clause.rank_ranges.iter().copied().filter(|range| range.len() > 0).collect();
        assert_eq!(occurring.len(), 2);
        assert!(occurring.contains(&range(10, 20)) && occurring.contains(&range(30, 40)));
    }

    #[test]
    fn clause_at_cap_is_not_sampled() {
        let mut clause = clause(&[50]);
        clause.sample(50);
        assert!(!clause.sampled);
        assert_eq!(clause.num_positions(), 50);
    }
}

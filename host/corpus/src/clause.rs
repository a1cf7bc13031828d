//! One clause in one shard: where its terms lie, and which part the official engine keeps of a frequent one.

use crate::draw::Draw;
use crate::error::Result;
use crate::segment::Segment;
use crate::shard::Shard;

#[derive(Debug)]
pub(crate) struct ShardClause {
    /// Which clause of the query.
    pub(crate) number: usize,
    /// Per term the ranks of its occurrences (of those kept).
    pub(crate) segments: Vec<Segment>,
    /// Occurrences of all terms before any were dropped; what two terms share counts twice.
    pub(crate) count: u64,
    /// How many occurrences each one kept stands for.
    pub(crate) factor: u64,
    /// Whether occurrences were dropped.
    pub(crate) sampled: bool,
}

impl ShardClause {
    pub(crate) fn find(shard: &Shard, number: usize, terms: &[Vec<u8>]) -> Result<Self> {
        let segments = terms.iter().map(|term| shard.find(term)).collect::<Result<Vec<_>>>()?;
        let count = segments.iter().map(|segment| segment.len()).sum();
        Ok(Self { number, segments, count, factor: 1, sampled: false })
    }

    /// Drops occurrences as the official engine does, until about `cap` are left: of every term one random window of
    /// neighbouring ranks, from a generator that starts afresh for each clause and shard.
    pub(crate) fn sample(&mut self, cap: u64) {
        if self.count <= cap {
            return;
        }
        let mut draw = Draw::new();
        let mut kept = 0;
        for segment in &mut self.segments {
            let share = u128::from(segment.len()) * u128::from(cap);
            let length = share.div_ceil(u128::from(self.count)) as u64; // at most the segment's, as cap < count
            segment.start += draw.up_to(segment.len() - length);
            segment.end = segment.start + length;
            kept += length;
        }
        self.factor = self.count / kept;
        self.sampled = true;
    }

    /// The ranks of the occurrences kept, term by term.
    pub(crate) fn ranks(&self) -> impl Iterator<Item = u64> + '_ {
        self.segments.iter().flat_map(|segment| segment.start..segment.end)
    }

    /// Occurrences kept.
    pub(crate) fn num_positions(&self) -> u64 {
        self.segments.iter().map(|segment| segment.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clause(lengths: &[u64]) -> ShardClause {
        let segments = lengths.iter().map(|&length| Segment { start: 1_000, end: 1_000 + length }).collect();
        ShardClause { number: 0, segments, count: lengths.iter().sum(), factor: 1, sampled: false }
    }

    /// Start offsets and factors of the published wheel.
    #[test]
    fn windows_are_the_official_ones() {
        for (length, cap, offset, factor) in [
            (39_306, 1, 17_563, 39_306),
            (39_306, 500, 17_340, 78),
            (664, 50, 274, 13),
            (1_000_001, 500_000, 223_443, 2),
        ] {
            let mut clause = clause(&[length]);
            clause.sample(cap);
            assert_eq!(clause.segments, [Segment { start: 1_000 + offset, end: 1_000 + offset + cap }]);
            assert_eq!((clause.factor, clause.sampled), (factor, true));
        }
    }

    #[test]
    fn every_term_of_a_clause_draws_in_turn() {
        let mut clause = clause(&[4_664, 174]); // film OR movie
        clause.sample(500);
        let windows: Vec<_> = clause.segments.iter().map(|s| (s.start - 1_000, s.len())).collect();
        assert_eq!(windows, [(1_868, 483), (120, 18)]);
        assert_eq!(clause.factor, 9);
    }

    #[test]
    fn a_clause_at_the_cap_is_left_alone() {
        let mut clause = clause(&[50]);
        clause.sample(50);
        assert!(!clause.sampled);
        assert_eq!(clause.num_positions(), 50);
    }
}

//! Sorted positions in the text: the occurrences of some n-grams, or the starts of the documents.

use crate::error::Result;
use crate::files::shard::Shard;
use crate::suffix::radix::{self, PositionInt};
use crate::suffix::search::{RankRange, num_ranks};

/// Sorted positions, four bytes each if the shard is small enough.
#[derive(Debug)]
pub(crate) enum PositionList {
    Narrow(SortedList<u32>),
    Wide(SortedList<u64>),
}

impl PositionList {
    /// Reads and sorts the positions at some ranks.
    pub(crate) fn read(shard: &Shard, ranges: &[RankRange]) -> Result<Self> {
        fn collect<T: PositionInt>(shard: &Shard, ranges: &[RankRange]) -> Result<SortedList<T>> {
            let mut positions = Vec::with_capacity(num_ranks(ranges) as usize);
            for range in ranges {
                shard.will_read(range.ranks());
                for rank in range.ranks() {
                    positions.push(T::narrow(shard.position(rank)?));
                }
            }
            radix::sort(&mut positions, shard.num_tokens);
            Ok(SortedList::new(positions, shard.num_tokens))
        }
        Ok(if fits_narrow(num_ranks(ranges), shard.num_tokens) {
            Self::Narrow(collect(shard, ranges)?)
        } else {
            Self::Wide(collect(shard, ranges)?)
        })
    }

    /// Reads the starts of all documents from the offsets alone: checking each separator would read
    /// the complete stream.
    pub(crate) fn read_document_starts(shard: &Shard) -> Result<Self> {
        let mut starts = Vec::with_capacity(shard.num_documents() as usize);
        for document in 0..shard.num_documents() {
            let start = shard.unchecked_document_start(document)?;
            if starts.last().is_some_and(|&last| start <= last) {
                return Err(shard.corrupt_offset(document, start * shard.width.bytes() as u64));
            }
            starts.push(start);
        }
        Ok(Self::new(starts, shard.num_tokens))
    }

    /// Creates a list from ascending positions below `limit`.
    pub(crate) fn new(positions: Vec<u64>, limit: u64) -> Self {
        if fits_narrow(positions.len() as u64, limit) {
            Self::Narrow(SortedList::new(positions.into_iter().map(u32::narrow).collect(), limit))
        } else {
            Self::Wide(SortedList::new(positions, limit))
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Narrow(list) => list.positions.len(),
            Self::Wide(list) => list.positions.len(),
        }
    }

    /// Returns the position at an index below [`Self::len`].
    pub(crate) fn get(&self, index: usize) -> u64 {
        match self {
            Self::Narrow(list) => list.positions[index].into(),
            Self::Wide(list) => list.positions[index],
        }
    }

    /// Returns the index of the first position that is not below `target`.
    pub(crate) fn first_at_or_after(&self, target: u64) -> usize {
        match self {
            Self::Narrow(list) => list.first_at_or_after(target),
            Self::Wide(list) => list.first_at_or_after(target),
        }
    }

    /// Calls `visit` for each pair of a left and a right end, with the last position before the
    /// right end and the first at or after the left end.
    pub(crate) fn for_each_neighbours(
        &self,
        ends: impl Iterator<Item = (u64, u64)>,
        visit: impl FnMut(Option<u64>, Option<u64>),
    ) {
        match self {
            Self::Narrow(list) => list.for_each_neighbours(ends, visit),
            Self::Wide(list) => list.for_each_neighbours(ends, visit),
        }
    }

    pub(crate) fn num_bytes(&self) -> usize {
        match self {
            Self::Narrow(list) => list.num_bytes(),
            Self::Wide(list) => list.num_bytes(),
        }
    }
}

/// True if positions and their indices fit in 32 bits. A list may be longer than the shard: an
/// occurrence that two terms of a clause share is in it twice.
fn fits_narrow(length: u64, limit: u64) -> bool {
    limit.max(length) <= u64::from(u32::MAX)
}

/// An ascending list with a directory. A search reads one entry of the directory and a few
/// neighbours: consecutive searches do not depend on each other, and few branches depend on data.
#[derive(Debug)]
pub(crate) struct SortedList<T> {
    positions: Vec<T>,
    /// Index of the first position in or after each bucket of `1 << shift` tokens.
    directory: Vec<T>,
    shift: u32,
}

/// Number of positions that are compared together, in vector registers.
const LANES: usize = 8;
/// Greatest average number of positions per bucket: few enough that most buckets have fewer than
/// [`LANES`].
const PER_BUCKET: u64 = 4;

impl<T: PositionInt> SortedList<T> {
    fn new(positions: Vec<T>, limit: u64) -> Self {
        let shift =
            (PER_BUCKET.saturating_mul(limit) / (positions.len() as u64).max(1)).max(1).ilog2();
        let num_buckets = (limit >> shift) as usize + 1;
        let mut directory = Vec::with_capacity(num_buckets);
        for (index, &position) in positions.iter().enumerate() {
            while directory.len() <= (position.into() >> shift) as usize {
                directory.push(T::narrow(index as u64));
            }
        }
        directory.resize(num_buckets, T::narrow(positions.len() as u64));
        Self { positions, directory, shift }
    }

    fn first_at_or_after(&self, target: u64) -> usize {
        let bucket = (target >> self.shift) as usize;
        let Some(&first) = self.directory.get(bucket) else { return self.positions.len() };
        let start = first.into() as usize;
        let is_below = |position: &T| (*position).into() < target;
        match self.positions[start..].first_chunk::<LANES>() {
            // Counting has no branch to mispredict.
            Some(next) => {
                match next.iter().filter(|&&position| position < T::narrow(target)).count() {
                    LANES => {
                        let end = self
                            .directory
                            .get(bucket + 1)
                            .map_or(self.positions.len(), |&end| end.into() as usize);
                        let rest = start + LANES;
                        rest + self.positions[rest..end.max(rest)].partition_point(is_below)
                    }
                    num_below => start + num_below,
                }
            }
            None => {
                start + self.positions[start..].iter().filter(|position| is_below(position)).count()
            }
        }
    }

    fn for_each_neighbours(
        &self,
        ends: impl Iterator<Item = (u64, u64)>,
        mut visit: impl FnMut(Option<u64>, Option<u64>),
    ) {
        let position_at = |index: usize| self.positions.get(index).map(|&position| position.into());
        for (left, right) in ends {
            let after = self.first_at_or_after(left);
            let beyond = if left == right { after } else { self.first_at_or_after(right) };
            visit(beyond.checked_sub(1).and_then(position_at), position_at(after));
        }
    }

    fn num_bytes(&self) -> usize {
        size_of_val(self.positions.as_slice()) + size_of_val(self.directory.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_search_matches_plain_search() {
        // Each even number three times.
        let crowded = |length: u64| (0..length).map(|i| 500 + i / 3 * 2).collect();
        let even = |length: u64| (0..length).map(|i| i * 31).collect();
        for limit in [1_000, 1 << 40] {
            for length in [0, 1, 7, 8, 9, 30] {
                for positions in [crowded(length), even(length)] {
                    let positions: Vec<u64> = positions;
                    let list = PositionList::new(positions.clone(), limit);
                    for target in (0..1_001).chain([limit - 1, limit]) {
                        let expected = positions.partition_point(|&position| position < target);
                        assert_eq!(
                            list.first_at_or_after(target),
                            expected,
                            "{target} in {positions:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn neighbour_search_excludes_right_end_includes_left() {
        let list = PositionList::new(vec![5, 9, 10, 10, 14], 20);
        let mut seen = Vec::new();
        let ends = [(10, 10), (6, 11), (15, 15), (0, 5)];
        list.for_each_neighbours(ends.into_iter(), |before, after| seen.push((before, after)));
        assert_eq!(
            seen,
            [(Some(9), Some(10)), (Some(10), Some(9)), (Some(14), None), (None, Some(5))]
        );

        let wide = PositionList::new(vec![1 << 40], 1 << 41);
        let end = (1 << 40, 1 << 40);
        wide.for_each_neighbours([end].into_iter(), |before, after| {
            assert_eq!((before, after), (None, Some(1 << 40)))
        });
    }
}

//! Positions in the text, in ascending order: the occurrences of some n-grams, or the starts of the
//! documents.

use crate::error::Result;
use crate::files::shard::Shard;
use crate::suffix::radix::{self, Position};
use crate::suffix::search::{RankRange, num_ranks};

/// Sorted positions, four bytes each where the shard allows it.
#[derive(Debug)]
pub(crate) enum Positions {
    Narrow(Sorted<u32>),
    Wide(Sorted<u64>),
}

impl Positions {
    /// Reads and sorts the positions at some ranks.
    pub(crate) fn read(shard: &Shard, ranges: &[RankRange]) -> Result<Self> {
        fn collect<T: Position>(shard: &Shard, ranges: &[RankRange]) -> Result<Sorted<T>> {
            let mut positions = Vec::with_capacity(num_ranks(ranges) as usize);
            for range in ranges {
                shard.will_read(range.ranks());
                for rank in range.ranks() {
                    positions.push(T::narrow(shard.position(rank)?));
                }
            }
            radix::sort(&mut positions, shard.num_tokens);
            Ok(Sorted::new(positions, shard.num_tokens))
        }
        Ok(if fits_narrow(num_ranks(ranges), shard.num_tokens) {
            Self::Narrow(collect(shard, ranges)?)
        } else {
            Self::Wide(collect(shard, ranges)?)
        })
    }

    /// The starts of all documents, from the offsets alone: checking each separator would read the
    /// whole stream.
    pub(crate) fn of_documents(shard: &Shard) -> Result<Self> {
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

    /// Takes positions, ascending and all of them below `limit`.
    pub(crate) fn new(positions: Vec<u64>, limit: u64) -> Self {
        if fits_narrow(positions.len() as u64, limit) {
            Self::Narrow(Sorted::new(positions.into_iter().map(u32::narrow).collect(), limit))
        } else {
            Self::Wide(Sorted::new(positions, limit))
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Narrow(list) => list.positions.len(),
            Self::Wide(list) => list.positions.len(),
        }
    }

    /// The position at an index below [`Self::len`].
    pub(crate) fn get(&self, index: usize) -> u64 {
        match self {
            Self::Narrow(list) => list.positions[index].into(),
            Self::Wide(list) => list.positions[index],
        }
    }

    /// Index of the first position that is not below `target`.
    pub(crate) fn first_at_or_after(&self, target: u64) -> usize {
        match self {
            Self::Narrow(list) => list.first_at_or_after(target),
            Self::Wide(list) => list.first_at_or_after(target),
        }
    }

    /// Shows for each pair of a left and a right end the last position before the right end, and
    /// the first at or after the left end.
    pub(crate) fn around(
        &self,
        ends: impl Iterator<Item = (u64, u64)>,
        show: impl FnMut(Option<u64>, Option<u64>),
    ) {
        match self {
            Self::Narrow(list) => list.around(ends, show),
            Self::Wide(list) => list.around(ends, show),
        }
    }

    pub(crate) fn num_bytes(&self) -> usize {
        match self {
            Self::Narrow(list) => list.num_bytes(),
            Self::Wide(list) => list.num_bytes(),
        }
    }
}

/// Both the positions and their indices must fit; what two terms of a clause share is in the list
/// twice.
fn fits_narrow(length: u64, limit: u64) -> bool {
    limit.max(length) <= u64::from(u32::MAX)
}

/// An ascending list with a directory. A search is one read of the directory and one of a few
/// neighbours: no search waits for the one before it, and hardly a branch depends on what is found.
#[derive(Debug)]
pub(crate) struct Sorted<T> {
    positions: Vec<T>,
    /// For each stretch of `1 << shift` tokens the index of the first position in it or after it.
    directory: Vec<T>,
    shift: u32,
}

/// Positions compared at once.
const LANES: usize = 8;
/// Positions per stretch of the directory, on average at most: few enough that most stretches have
/// fewer than [`LANES`].
const PER_STRETCH: u64 = 4;

impl<T: Position> Sorted<T> {
    fn new(positions: Vec<T>, limit: u64) -> Self {
        let shift =
            (PER_STRETCH.saturating_mul(limit) / (positions.len() as u64).max(1)).max(1).ilog2();
        let stretches = (limit >> shift) as usize + 1;
        let mut directory = Vec::with_capacity(stretches);
        for (index, &position) in positions.iter().enumerate() {
            while directory.len() <= (position.into() >> shift) as usize {
                directory.push(T::narrow(index as u64));
            }
        }
        directory.resize(stretches, T::narrow(positions.len() as u64));
        Self { positions, directory, shift }
    }

    fn first_at_or_after(&self, target: u64) -> usize {
        let stretch = (target >> self.shift) as usize;
        let Some(&start) = self.directory.get(stretch) else { return self.positions.len() };
        let start = start.into() as usize;
        let below = |position: &T| (*position).into() < target;
        match self.positions[start..].first_chunk::<LANES>() {
            // Counting has no branch to mispredict.
            Some(next) => {
                match next.iter().filter(|&&position| position < T::narrow(target)).count() {
                    LANES => {
                        let end = self
                            .directory
                            .get(stretch + 1)
                            .map_or(self.positions.len(), |&end| end.into() as usize);
                        let rest = start + LANES;
                        rest + self.positions[rest..end.max(rest)].partition_point(below)
                    }
                    num_below => start + num_below,
                }
            }
            None => {
                start + self.positions[start..].iter().filter(|position| below(position)).count()
            }
        }
    }

    fn around(
        &self,
        ends: impl Iterator<Item = (u64, u64)>,
        mut show: impl FnMut(Option<u64>, Option<u64>),
    ) {
        let at = |index: usize| self.positions.get(index).map(|&position| position.into());
        for (left, right) in ends {
            let after = self.first_at_or_after(left);
            let beyond = if left == right { after } else { self.first_at_or_after(right) };
            show(beyond.checked_sub(1).and_then(at), at(after));
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
        let crowded = |length: u64| (0..length).map(|i| 500 + i / 3 * 2).collect(); // each even number three times
        let even = |length: u64| (0..length).map(|i| i * 31).collect();
        for limit in [1_000, 1 << 40] {
            for length in [0, 1, 7, 8, 9, 30] {
                for positions in [crowded(length), even(length)] {
                    let positions: Vec<u64> = positions;
                    let list = Positions::new(positions.clone(), limit);
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
        let list = Positions::new(vec![5, 9, 10, 10, 14], 20);
        let mut seen = Vec::new();
        let ends = [(10, 10), (6, 11), (15, 15), (0, 5)];
        list.around(ends.into_iter(), |before, after| seen.push((before, after)));
        assert_eq!(
            seen,
            [(Some(9), Some(10)), (Some(10), Some(9)), (Some(14), None), (None, Some(5))]
        );

        let wide = Positions::new(vec![1 << 40], 1 << 41);
        let end = (1 << 40, 1 << 40);
        wide.around([end].into_iter(), |before, after| {
            assert_eq!((before, after), (None, Some(1 << 40)))
        });
    }
}

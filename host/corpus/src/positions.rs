//! All positions of a clause in one shard, ascending.

use std::sync::Arc;

use crate::error::Result;
use crate::join::Range;
use crate::radix::{self, Position};
use crate::segment::Segment;
use crate::shard::Shard;

/// Sorted positions, four bytes each where the shard allows it.
#[derive(Debug)]
pub(crate) enum Positions {
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
}

impl Positions {
    /// Reads and sorts what the ranks of some segments point to.
    pub(crate) fn read(shard: &Shard, segments: &[Segment]) -> Result<Self> {
        fn collect<T: Position>(shard: &Shard, segments: &[Segment]) -> Result<Vec<T>> {
            let length: u64 = segments.iter().map(|segment| segment.len()).sum();
            let mut positions = Vec::with_capacity(length as usize);
            for rank in segments.iter().flat_map(|segment| segment.start..segment.end) {
                positions.push(T::narrow(shard.position(rank)?));
            }
            radix::sort(&mut positions, shard.num_tokens);
            Ok(positions)
        }
        Ok(if shard.num_tokens <= 1 << 32 {
            Self::Narrow(collect(shard, segments)?)
        } else {
            Self::Wide(collect(shard, segments)?)
        })
    }

    /// Takes positions, ascending and all of them below `limit`.
    pub(crate) fn new(positions: Vec<u64>, limit: u64) -> Self {
        if limit <= 1 << 32 {
            Self::Narrow(positions.into_iter().map(u32::narrow).collect())
        } else {
            Self::Wide(positions)
        }
    }

    /// The position at an index below the clause's number of positions.
    pub(crate) fn get(&self, index: usize) -> u64 {
        match self {
            Self::Narrow(positions) => positions[index].into(),
            Self::Wide(positions) => positions[index],
        }
    }

    pub(crate) fn num_bytes(&self) -> usize {
        match self {
            Self::Narrow(positions) => size_of_val(positions.as_slice()),
            Self::Wide(positions) => size_of_val(positions.as_slice()),
        }
    }
}

/// A list and a place in it: ranges that come in ascending order find their neighbours near the last one's.
#[derive(Debug)]
pub(crate) struct Cursor {
    list: Arc<Positions>,
    /// Where the last search ended.
    place: usize,
}

impl Cursor {
    pub(crate) fn new(list: Arc<Positions>) -> Self {
        Self { list, place: 0 }
    }

    /// Shows for each range the last position before its right end, and the first at or after its left end.
    pub(crate) fn around(&mut self, ranges: &[Range], show: impl FnMut(Range, Option<u64>, Option<u64>)) {
        match &*self.list {
            Positions::Narrow(positions) => around(positions, &mut self.place, ranges, show),
            Positions::Wide(positions) => around(positions, &mut self.place, ranges, show),
        }
    }
}

fn around<T: Position>(
    positions: &[T],
    place: &mut usize,
    ranges: &[Range],
    mut show: impl FnMut(Range, Option<u64>, Option<u64>),
) {
    let at = |index: usize| positions.get(index).map(|&position| position.into());
    let mut after = *place;
    for &range in ranges {
        after = first_at_or_after(positions, after, T::narrow(range.left));
        // A range of one position ends where it begins.
        let beyond =
            if range.left == range.right { after } else { first_at_or_after(positions, after, T::narrow(range.right)) };
        show(range, beyond.checked_sub(1).and_then(at), at(after));
    }
    *place = after;
}

/// Positions compared at once.
const LANES: usize = 8;

/// Index of the first position that is not below `target`, searched for from a guess.
fn first_at_or_after<T: Position>(positions: &[T], guess: usize, target: T) -> usize {
    if guess > 0 && positions[guess - 1] >= target {
        return gallop_back(positions, guess - 1, target);
    }
    // In lists of like length the answer is a few steps ahead. Counting those below has no branch to mispredict.
    match positions[guess..].first_chunk::<LANES>() {
        Some(next) => match next.iter().filter(|&&position| position < target).count() {
            LANES => gallop(positions, guess + LANES, target),
            steps => guess + steps,
        },
        None => guess + positions[guess..].partition_point(|&position| position < target),
    }
}

/// The answer is at `from` or after it: doubles the step until it is passed, then halves.
fn gallop<T: Position>(positions: &[T], mut from: usize, target: T) -> usize {
    let mut step = LANES;
    while from + step <= positions.len() && positions[from + step - 1] < target {
        from += step;
        step *= 2;
    }
    let end = positions.len().min(from + step - 1);
    from + positions[from..end].partition_point(|&position| position < target)
}

/// The same where the answer is at `from` or before it.
fn gallop_back<T: Position>(positions: &[T], mut from: usize, target: T) -> usize {
    let mut step = 1;
    while step <= from && positions[from - step] >= target {
        from -= step;
        step *= 2;
    }
    let start = (from + 1).saturating_sub(step);
    start + positions[start..from].partition_point(|&position| position < target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_guess_leads_to_the_same_index() {
        for length in 0..60_u32 {
            let positions: Vec<u32> = (0..length).map(|i| i / 3 * 2).collect(); // each even number three times
            for guess in 0..=positions.len() {
                for target in 0..42 {
                    let expected = positions.partition_point(|&position| position < target);
                    assert_eq!(first_at_or_after(&positions, guess, target), expected, "{length} {guess} {target}");
                }
            }
        }
    }

    #[test]
    fn neighbours_are_strictly_before_the_right_end_and_not_before_the_left_one() {
        let mut cursor = Cursor::new(Arc::new(Positions::Narrow(vec![5, 9, 10, 10, 14])));
        let mut seen = Vec::new();
        let ranges = [(10, 10), (6, 11), (15, 15), (0, 5)].map(|(left, right)| Range { left, right });
        cursor.around(&ranges, |_, before, after| seen.push((before, after)));
        assert_eq!(seen, [(Some(9), Some(10)), (Some(10), Some(9)), (Some(14), None), (None, Some(5))]);

        let mut wide = Cursor::new(Arc::new(Positions::Wide(vec![1 << 40])));
        wide.around(&[Range::at(1 << 40)], |_, before, after| assert_eq!((before, after), (None, Some(1 << 40))));
    }
}

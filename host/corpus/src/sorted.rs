//! All positions of a clause in one shard, ascending.

use crate::clause::ShardClause;
use crate::error::Result;
use crate::join::Range;
use crate::radix::{self, Position};
use crate::shard::Shard;

/// Sorted positions, four bytes each where the shard allows it, and a place in them: queries that come in ascending
/// order find their answer near the last one.
pub(crate) struct Sorted {
    positions: Positions,
    /// Where the last query ended.
    cursor: usize,
}

enum Positions {
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
}

impl Sorted {
    pub(crate) fn read(shard: &Shard, clause: &ShardClause) -> Result<Self> {
        fn collect<T: Position>(shard: &Shard, clause: &ShardClause) -> Result<Vec<T>> {
            let mut positions = Vec::with_capacity(clause.num_positions() as usize);
            for rank in clause.ranks() {
                positions.push(T::narrow(shard.position(rank)?));
            }
            radix::sort(&mut positions, shard.num_tokens);
            Ok(positions)
        }
        let positions = if shard.num_tokens <= 1 << 32 {
            Positions::Narrow(collect(shard, clause)?)
        } else {
            Positions::Wide(collect(shard, clause)?)
        };
        Ok(Self { positions, cursor: 0 })
    }

    pub(crate) fn len(&self) -> usize {
        match &self.positions {
            Positions::Narrow(positions) => positions.len(),
            Positions::Wide(positions) => positions.len(),
        }
    }

    /// The position at an index below `len`.
    pub(crate) fn get(&self, index: usize) -> u64 {
        match &self.positions {
            Positions::Narrow(positions) => positions[index].into(),
            Positions::Wide(positions) => positions[index],
        }
    }

    /// The last position before the range's right end, and the first at or after its left end.
    pub(crate) fn around(&mut self, range: Range) -> (Option<u64>, Option<u64>) {
        match &self.positions {
            Positions::Narrow(positions) => around(positions, &mut self.cursor, range),
            Positions::Wide(positions) => around(positions, &mut self.cursor, range),
        }
    }
}

fn around<T: Position>(positions: &[T], cursor: &mut usize, range: Range) -> (Option<u64>, Option<u64>) {
    let after = first_at_or_after(positions, *cursor, range.left);
    *cursor = after;
    // A range of one position ends where it begins: the second search then stays where it is.
    let beyond = first_at_or_after(positions, after, range.right);
    let at = |index: usize| positions.get(index).map(|&position| position.into());
    (beyond.checked_sub(1).and_then(at), at(after))
}

/// Index of the first position that is not below `target`, searched with doubling steps from a guess.
fn first_at_or_after<T: Position>(positions: &[T], guess: usize, target: u64) -> usize {
    let below = |index: usize| positions[index].into() < target;
    let (low, high);
    let mut step = 1;
    if guess < positions.len() && below(guess) {
        let mut known_below = guess + 1;
        while known_below + step <= positions.len() && below(known_below + step - 1) {
            known_below += step;
            step *= 2;
        }
        (low, high) = (known_below, positions.len().min(known_below + step - 1));
    } else {
        let mut known_not_below = guess;
        while step <= known_not_below && !below(known_not_below - step) {
            known_not_below -= step;
            step *= 2;
        }
        (low, high) = ((known_not_below + 1).saturating_sub(step), known_not_below);
    }
    low + positions[low..high].partition_point(|&position| position.into() < target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_guess_leads_to_the_same_index() {
        for length in 0..40_u32 {
            let positions: Vec<u32> = (0..length).map(|i| i / 3 * 2).collect(); // each even number three times
            for guess in 0..=positions.len() {
                for target in 0..30 {
                    let expected = positions.partition_point(|&position| u64::from(position) < target);
                    assert_eq!(first_at_or_after(&positions, guess, target), expected, "{length} {guess} {target}");
                }
            }
        }
    }

    #[test]
    fn neighbours_are_strictly_before_the_right_end_and_not_before_the_left_one() {
        let mut sorted = Sorted { positions: Positions::Narrow(vec![5, 9, 10, 10, 14]), cursor: 0 };
        assert_eq!(sorted.around(Range { left: 10, right: 10 }), (Some(9), Some(10)));
        assert_eq!(sorted.around(Range { left: 6, right: 11 }), (Some(10), Some(9)));
        assert_eq!(sorted.around(Range { left: 15, right: 15 }), (Some(14), None));
        assert_eq!(sorted.around(Range { left: 0, right: 5 }), (None, Some(5)));
        let mut wide = Sorted { positions: Positions::Wide(vec![1 << 40]), cursor: 1 };
        assert_eq!(wide.around(Range { left: 1 << 40, right: 1 << 40 }), (None, Some(1 << 40)));
    }
}

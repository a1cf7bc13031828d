//! Sorting positions, least significant digit first: for numbers of known size faster than
//! comparing them.

/// A position as wide as the shard needs.
pub(crate) trait Position: Copy + Ord + Default + Into<u64> {
    /// Converts a position that is known to fit.
    fn narrow(position: u64) -> Self;
}

impl Position for u32 {
    fn narrow(position: u64) -> Self {
        position as u32
    }
}

impl Position for u64 {
    fn narrow(position: u64) -> Self {
        position
    }
}

/// Shorter lists are sorted faster by comparing.
const SHORT: usize = 512;
/// Wider digits scatter over more cache lines than the first-level cache has.
const MAX_DIGIT_BITS: u32 = 11;

/// Sorts positions, all of them below `limit`.
pub(crate) fn sort<T: Position>(positions: &mut Vec<T>, limit: u64) {
    if positions.len() < SHORT {
        return positions.sort_unstable();
    }
    let bits = u64::BITS - limit.saturating_sub(1).leading_zeros();
    let passes = bits.div_ceil(MAX_DIGIT_BITS).max(1);
    let digit_bits = bits.div_ceil(passes).max(1);
    let mut other = vec![T::default(); positions.len()];
    for pass in 0..passes {
        let digit = |position: T| {
            (position.into() >> (pass * digit_bits)) as usize & ((1 << digit_bits) - 1)
        };
        let mut next = vec![0; 1 << digit_bits];
        for &position in positions.iter() {
            next[digit(position)] += 1;
        }
        let mut start = 0;
        for place in &mut next {
            start += std::mem::replace(place, start);
        }
        for &position in positions.iter() {
            let place = &mut next[digit(position)];
            other[*place] = position;
            *place += 1;
        }
        std::mem::swap(positions, &mut other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn radix_sort_matches_standard_sort() {
        let mut state = 1_u64;
        for limit in [1, 2, 300, 1 << 24, (1 << 32) - 1, 5_500_000_000, u64::MAX] {
            for length in [0, 1, SHORT - 1, SHORT, 5_000] {
                let wide: Vec<u64> = (0..length)
                    .map(|_| {
                        state = state
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        (state ^ state >> 29) % limit
                    })
                    .collect();
                let mut expected = wide.clone();
                expected.sort_unstable();
                let mut sorted = wide.clone();
                sort(&mut sorted, limit);
                assert!(sorted == expected, "{length} below {limit}");
                if limit <= 1 << 32 {
                    let mut narrow: Vec<u32> =
                        wide.iter().map(|&position| u32::narrow(position)).collect();
                    sort(&mut narrow, limit);
                    assert!(
                        narrow.iter().map(|&p| u64::from(p)).eq(expected),
                        "{length} below {limit}, narrow"
                    );
                }
            }
        }
    }
}

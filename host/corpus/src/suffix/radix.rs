//! LSD radix sort of positions, which is faster than comparing numbers of known size.

/// An integer type for positions, as wide as the shard needs.
pub(crate) trait PositionInt: Copy + Ord + Default + Into<u64> {
    /// Converts a position that is known to fit.
    fn narrow(position: u64) -> Self;
}

impl PositionInt for u32 {
    fn narrow(position: u64) -> Self {
        position as u32
    }
}

impl PositionInt for u64 {
    fn narrow(position: u64) -> Self {
        position
    }
}

/// Length below which a comparison sort is faster.
const SHORT: usize = 512;
/// Widest digit, bits. A wider one scatters over more cache lines than the first-level cache has.
const MAX_DIGIT_BITS: u32 = 11;

/// Sorts positions, all of them below `limit`.
pub(crate) fn sort<T: PositionInt>(positions: &mut Vec<T>, limit: u64) {
    if positions.len() < SHORT {
        return positions.sort_unstable();
    }
    let bits = u64::BITS - limit.saturating_sub(1).leading_zeros();
    let passes = bits.div_ceil(MAX_DIGIT_BITS).max(1);
    let digit_bits = bits.div_ceil(passes).max(1);
    let mut buffer = vec![T::default(); positions.len()];
    for pass in 0..passes {
        let digit = |position: T| {
            (position.into() >> (pass * digit_bits)) as usize & ((1 << digit_bits) - 1)
        };
        let mut next = vec![0; 1 << digit_bits];
        for &position in positions.iter() {
            next[digit(position)] += 1;
        }
        // From the count of each digit to the index of its first position.
        let mut start = 0;
        for index in &mut next {
            start += std::mem::replace(index, start);
        }
        for &position in positions.iter() {
            let index = &mut next[digit(position)];
            buffer[*index] = position;
            *index += 1;
        }
        std::mem::swap(positions, &mut buffer);
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

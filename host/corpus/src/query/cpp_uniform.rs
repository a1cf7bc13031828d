//! The uniform distribution of the C++ library, which decides the official engine's sample of a
//! frequent clause.
//!
//! The published wheels use mt19937 and `std::uniform_int_distribution` of GCC 10, which divides. A
//! wheel compiled with GCC 11 or later multiplies instead and gives other numbers for ranges above
//! about 1e5; bit-equality with the published one needs the division.

use rand_mt::Mt;

const SEED: u32 = 19_260_817;

/// The official engine's generator; there is a new one for every clause and shard.
pub(crate) struct CppUniform(Mt);

impl CppUniform {
    pub(crate) fn new() -> Self {
        Self(Mt::new(SEED))
    }

    /// Draws a number in `0..=range`.
    pub(crate) fn draw(&mut self, range: u64) -> u64 {
        const MAX: u64 = u32::MAX as u64;
        match range {
            MAX => u64::from(self.0.next_u32()),
            0..MAX => {
                let outcomes = range + 1;
                let scaling = MAX / outcomes;
                let past = outcomes * scaling;
                loop {
                    let raw = u64::from(self.0.next_u32());
                    if raw < past {
                        return raw / scaling;
                    }
                }
            }
            _ => loop {
                let high = self.draw(range >> 32) << 32;
                let (value, wrapped) = high.overflowing_add(u64::from(self.0.next_u32()));
                if !wrapped && value <= range {
                    return value;
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws of the published wheel (`rng-vectors.json` holds more; see `tests/golden.rs`).
    #[test]
    fn uniform_draws_match_gcc_10() {
        let cases: [(u64, [u64; 4]); 8] = [
            (0, [0, 0, 0, 0]),
            (1, [0, 1, 0, 0]),
            (9, [4, 7, 4, 4]),
            (99_999, [44_684, 76_699, 43_138, 45_797]),
            (3_000_000_000, [1_919_156_834, 1_852_757_103, 1_966_938_780, 2_176_697_777]),
            (u64::from(u32::MAX), [1_919_156_834, 3_294_181_187, 1_852_757_103, 1_966_938_780]),
            (1 << 32, [3_294_181_187, 1_966_938_780, 828_307_086, 2_091_480_844]),
            (10_000_000_000, [7_589_148_483, 6_261_906_076, 6_173_553_253, 5_123_274_382]),
        ];
        for (range, expected) in cases {
            let mut uniform = CppUniform::new();
            assert_eq!(std::array::from_fn(|_| uniform.draw(range)), expected, "range {range}");
        }
    }

    #[test]
    #[ignore = "needs CORVER_SHARED: `make conformance`"]
    fn uniform_draws_match_golden_vectors() {
        #[derive(serde::Deserialize)]
        struct Vectors {
            uniform: Vec<Uniform>,
        }
        #[derive(serde::Deserialize)]
        struct Uniform {
            range: u64,
            division: Vec<u64>,
        }

        let shared = std::env::var_os("CORVER_SHARED").expect("CORVER_SHARED names the vectors");
        let path = std::path::Path::new(&shared).join("golden/corpus/rng-vectors.json");
        let vectors: Vectors = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        assert!(vectors.uniform.len() >= 20);
        for Uniform { range, division } in vectors.uniform {
            let mut uniform = CppUniform::new();
            let drawn: Vec<_> = division.iter().map(|_| uniform.draw(range)).collect();
            assert_eq!(drawn, division, "range {range}");
        }
    }
}

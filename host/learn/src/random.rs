//! Reproducible random numbers. A seed, a purpose and indices name the stream of every draw, so no
//! global generator decides a result.

use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A stream of random numbers.
#[derive(Debug, Clone)]
pub(crate) struct RandomStream(ChaCha8Rng);

impl RandomStream {
    /// Opens the stream with this name. Different names give independent streams.
    pub(crate) fn new(seed: u64, purpose: &str, indices: &[u64]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("corver-learn random stream v1");
        hasher.update(&seed.to_le_bytes());
        hasher.update(&(purpose.len() as u64).to_le_bytes());
        hasher.update(purpose.as_bytes());
        for index in indices {
            hasher.update(&index.to_le_bytes());
        }
        Self(ChaCha8Rng::from_seed(*hasher.finalize().as_bytes()))
    }

    /// Draws uniformly from the multiples of 2⁻²⁴ in [0, 1), which are exact in f32.
    pub(crate) fn uniform(&mut self) -> f32 {
        (self.0.next_u32() >> 8) as f32 * (1.0 / 16_777_216.0)
    }

    /// Draws from the standard normal distribution (Box–Muller, one number of the pair).
    pub(crate) fn normal(&mut self) -> f32 {
        let radius = (-2.0 * (1.0 - f64::from(self.uniform())).ln()).sqrt();
        (radius * (std::f64::consts::TAU * f64::from(self.uniform())).cos()) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_streams_are_determined_by_their_key() {
        let draw = |seed, purpose, indices: &[u64]| {
            let mut s = RandomStream::new(seed, purpose, indices);
            [s.uniform(), s.uniform(), s.uniform()]
        };
        assert_eq!(draw(1, "a", &[2, 3]), draw(1, "a", &[2, 3]));
        assert_ne!(draw(1, "a", &[2, 3]), draw(1, "a", &[3, 2]));
        assert_ne!(draw(1, "a", &[2]), draw(2, "a", &[2]));
        assert_ne!(draw(1, "a", &[2]), draw(1, "b", &[2]));
    }

    #[test]
    fn normals_have_mean_zero_and_variance_one() {
        let mut s = RandomStream::new(0, "test", &[]);
        let draws: Vec<f64> = (0..20_000).map(|_| f64::from(s.normal())).collect();
        let mean = draws.iter().sum::<f64>() / 20_000.0;
        let variance = draws.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 20_000.0;
        assert!(mean.abs() < 0.03, "{mean}");
        assert!((variance - 1.0).abs() < 0.05, "{variance}");
    }
}

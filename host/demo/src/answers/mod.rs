//! Backends of the demo for NLI and chat requests, so that rules with neural models can be tried
//! without any. They understand the world's own wordings, and are right about them except for a
//! chosen rate of errors.

mod chat;
mod nli;
mod task;

pub use chat::DemoChat;
pub use nli::DemoNli;

use crate::DemoError;

/// A rate of wrong answers, and the seed that selects them. Equal requests get equal answers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InjectedErrors {
    rate: f64,
    seed: u64,
}

impl InjectedErrors {
    /// Returns errors in the share `rate` of all requests, 0 to 1; `seed` selects them.
    ///
    /// # Errors
    /// Fails if the rate is not from 0 to 1.
    pub fn new(rate: f64, seed: u64) -> Result<Self, DemoError> {
        if (0.0..=1.0).contains(&rate) {
            Ok(Self { rate, seed })
        } else {
            Err(DemoError::ErrorRate { got: rate })
        }
    }

    /// Returns the right answer or, if this request is selected for an error, one of `wrong`.
    fn answer<T>(&self, request: &[&str], right: T, mut wrong: Vec<T>) -> T {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.seed.to_le_bytes());
        for part in request {
            // The length separates the parts: (ab, c) and (a, bc) have different hashes.
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
        let hash = hasher.finalize();
        let number = |offset: usize| {
            u64::from_le_bytes(std::array::from_fn(|byte| hash.as_bytes()[offset + byte]))
        };
        // The upper 53 bits, which an f64 represents exactly, as a number from 0 to below 1.
        let is_wrong = ((number(0) >> 11) as f64 / (1u64 << 53) as f64) < self.rate;
        if !is_wrong || wrong.is_empty() {
            return right;
        }
        let chosen = number(8) % wrong.len() as u64;
        wrong.swap_remove(chosen as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_rate_is_respected_and_deterministic() {
        let errors = InjectedErrors::new(0.25, 3).unwrap();
        let answers = |errors: &InjectedErrors| -> Vec<u32> {
            (0..4_000).map(|n: u32| errors.answer(&[&n.to_string()], 0, vec![1, 2])).collect()
        };
        let given = answers(&errors);
        let share =
            |answer: u32| given.iter().filter(|given| **given == answer).count() as f64 / 4_000.0;
        assert!(
            (share(0) - 0.75).abs() < 0.03 && (share(1) - 0.125).abs() < 0.02,
            "{} {}",
            share(0),
            share(1)
        );
        assert_eq!(answers(&errors), given);
        assert_ne!(answers(&InjectedErrors::new(0.25, 4).unwrap()), given);
    }

    #[test]
    fn error_rate_zero_and_one_are_absolute() {
        let given = |rate| -> Vec<bool> {
            let errors = InjectedErrors::new(rate, 1).unwrap();
            (0..500).map(|n: u32| errors.answer(&[&n.to_string()], true, vec![false])).collect()
        };
        assert!(given(0.0).iter().all(|right| *right) && given(1.0).iter().all(|right| !right));
        for rate in [-0.1, 1.1, f64::NAN] {
            assert!(
                InjectedErrors::new(rate, 1).unwrap_err().to_string().contains("from 0 to 1"),
                "{rate}"
            );
        }
    }
}

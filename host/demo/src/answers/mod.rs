//! The world answers what a rule may ask beside counts: natural language inference and chat. It
//! reads its own wordings and is right about them, but for as many errors as one wants, so that
//! methods with neural verifiers can be tried without any.

mod chat;
mod nli;
mod request;

pub use chat::DemoChat;
pub use nli::DemoNli;

use crate::DemoError;

/// How often answers are wrong, and which ones. Equal questions get equal answers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Errors {
    rate: f64,
    seed: u64,
}

impl Errors {
    /// Of all questions, the share `rate` is answered wrongly; `seed` decides which.
    ///
    /// # Errors
    /// Where the rate is no share.
    pub fn new(rate: f64, seed: u64) -> Result<Self, DemoError> {
        if (0.0..=1.0).contains(&rate) {
            Ok(Self { rate, seed })
        } else {
            Err(DemoError::ErrorRate { got: rate })
        }
    }

    /// The right answer, or, where this question is answered wrongly, one of the `wrong` ones.
    fn answer<T>(&self, question: &[&str], right: T, mut wrong: Vec<T>) -> T {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.seed.to_le_bytes());
        for part in question {
            // The length marks where one part ends and the next begins.
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
        let hash = hasher.finalize();
        let number =
            |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| hash.as_bytes()[at + byte]));
        // The upper 53 bits: what an f64 holds, from 0 to below 1.
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
        let errors = Errors::new(0.25, 3).unwrap();
        let answers = |errors: &Errors| -> Vec<u32> {
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
        assert_ne!(answers(&Errors::new(0.25, 4).unwrap()), given);
    }

    #[test]
    fn error_rate_zero_and_one_are_absolute() {
        let given = |rate| -> Vec<bool> {
            let errors = Errors::new(rate, 1).unwrap();
            (0..500).map(|n: u32| errors.answer(&[&n.to_string()], true, vec![false])).collect()
        };
        assert!(given(0.0).iter().all(|right| *right) && given(1.0).iter().all(|right| !right));
        for rate in [-0.1, 1.1, f64::NAN] {
            assert!(
                Errors::new(rate, 1).unwrap_err().to_string().contains("from 0 to 1"),
                "{rate}"
            );
        }
    }
}

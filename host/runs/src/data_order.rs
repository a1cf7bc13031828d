//! The questions of a step, and the seed of its draws. Both depend only on the run's seed and the
//! step, so that a resumed run continues exactly as it would have.

use rand::seq::SliceRandom;
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Stream of the run's generator that seeds the steps; stream 0 shuffles the questions.
const STEP_STREAM: u64 = 1;

/// Returns the questions of step `step` (from 0). Every question occurs once per epoch, and each
/// epoch has its own order.
///
/// # Panics
/// If `num_questions` is 0.
#[must_use]
pub fn questions_of_step(
    num_questions: usize,
    per_step: usize,
    step: usize,
    seed: u64,
) -> Vec<usize> {
    let mut questions = Vec::with_capacity(per_step);
    let mut position = step * per_step;
    // A step may begin in one epoch and end in another.
    while questions.len() < per_step {
        let epoch = position / num_questions;
        let start = position % num_questions;
        let end = num_questions.min(start + per_step - questions.len());
        questions.extend_from_slice(&shuffled(num_questions, epoch, seed)[start..end]);
        position += end - start;
    }
    questions
}

/// Returns the order of the questions in an epoch.
fn shuffled(num_questions: usize, epoch: usize, seed: u64) -> Vec<usize> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed.wrapping_add(epoch as u64));
    let mut order: Vec<usize> = (0..num_questions).collect();
    order.shuffle(&mut rng);
    order
}

/// Returns the seed of the draws of step `step`.
#[must_use]
pub fn seed_of_step(seed: u64, step: usize) -> u64 {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(STEP_STREAM);
    // A seed takes two words, so that each step reads its own without the draws before it.
    rng.set_word_pos(2 * step as u128);
    rng.next_u64()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_question_comes_once_per_epoch() {
        let steps: Vec<usize> = (0..5).flat_map(|step| questions_of_step(10, 4, step, 7)).collect();
        for epoch in steps.chunks(10) {
            assert_eq!(epoch.iter().collect::<HashSet<_>>().len(), 10);
        }
        assert_ne!(steps[..10], steps[10..]);
        assert_eq!(questions_of_step(3, 7, 0, 1).len(), 7);
    }

    #[test]
    fn each_step_has_distinct_seed() {
        let seeds: HashSet<u64> = (0..100).map(|step| seed_of_step(42, step)).collect();
        assert_eq!(seeds.len(), 100);
        assert_eq!(seed_of_step(42, 3), seed_of_step(42, 3));
        assert_ne!(seed_of_step(42, 3), seed_of_step(43, 3));
    }
}

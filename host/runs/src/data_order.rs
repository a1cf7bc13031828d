//! Which questions a step trains on, and the seed of its draws: functions of the run's seed and the
//! step alone, so that a resumed run continues exactly as it would have.

use rand::seq::SliceRandom;
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Stream 0 of the run's generator shuffles the questions, stream 1 seeds the steps.
const STEP_STREAM: u64 = 1;

/// The questions of step `step` (from 0): every question once per epoch, each epoch in an order of
/// its own.
///
/// # Panics
/// Where `num_questions` is 0.
#[must_use]
pub fn questions_of_step(
    num_questions: usize,
    per_step: usize,
    step: usize,
    seed: u64,
) -> Vec<usize> {
    let mut order: Option<(usize, Vec<usize>)> = None;
    (step * per_step..(step + 1) * per_step)
        .map(|place| {
            let (epoch, at) = (place / num_questions, place % num_questions);
            let known = order.take().filter(|(of, _)| *of == epoch);
            let (_, shuffled) = order
                .insert(known.unwrap_or_else(|| (epoch, shuffled(num_questions, epoch, seed))));
            shuffled[at]
        })
        .collect()
}

fn shuffled(num_questions: usize, epoch: usize, seed: u64) -> Vec<usize> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed.wrapping_add(epoch as u64));
    let mut order: Vec<usize> = (0..num_questions).collect();
    order.shuffle(&mut rng);
    order
}

/// The seed of step `step`'s draws.
#[must_use]
pub fn seed_of_step(seed: u64, step: usize) -> u64 {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(STEP_STREAM);
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

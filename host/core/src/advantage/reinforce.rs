//! REINFORCE (Williams 1992) with the batch's mean as its baseline.
//!
//! ```text
//! A_t = R_t − mean_k R_k,   k over all completions of the step
//! ```
//!
//! The mean has a share of the completion's own return, one part in B; for the few hundred
//! completions of a step that bias is far below the noise. Nothing is divided by a spread: an easy
//! question and a hard one keep their distance.

use super::{Baseline, mean, unbiased_std};

/// One per completion. The spread is its group's, for the logs.
pub(super) fn baselines(completion_means: &[f64], num_generations: usize) -> Vec<Baseline> {
    let centre = mean(completion_means);
    let of_group = |group: &[f64]| {
        vec![Baseline { centre, spread: unbiased_std(group), scale: Some(1.0) }; group.len()]
    };
    completion_means.chunks(num_generations).flat_map(of_group).collect()
}

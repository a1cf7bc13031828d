//! REINFORCE (Williams 1992) with the batch's mean as its baseline.
//!
//! ```text
//! A_t = R_t − mean_k R_k,   k over all completions of the step
//! ```
//!
//! The mean has a share of the completion's own return, one part in B; for the few hundred
//! completions of a step that bias is far below the noise. Nothing is divided by a spread: an easy
//! question and a hard one keep their distance.

use super::Baseline;
use crate::stats::{mean, unbiased_std};

/// Returns one baseline per completion. The spread is its group's, for the logs.
pub(super) fn baselines(mean_returns: &[f64], num_generations: usize) -> Vec<Baseline> {
    let centre = mean(mean_returns);
    let mut baselines = Vec::with_capacity(mean_returns.len());
    for group in mean_returns.chunks(num_generations) {
        let baseline = Baseline { centre, spread: unbiased_std(group), scale: Some(1.0) };
        baselines.extend(vec![baseline; group.len()]);
    }
    baselines
}

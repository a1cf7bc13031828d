//! RLOO, REINFORCE leave-one-out (Kool et al. 2019; Ahmadian et al. 2024).
//!
//! ```text
//! A_t = R_t − 1/(G − 1) · Σ_{j ≠ k} R_j,   for the tokens of completion k of a group of G
//! ```
//!
//! The baseline does not depend on the completion itself, so it has no bias. Nothing is divided by
//! a spread.

use super::Baseline;
use crate::stats::unbiased_std;

/// Returns one baseline per completion; one that is alone in its group is its own. The spread is the
/// group's, for the logs.
pub(super) fn baselines(mean_returns: &[f64], num_generations: usize) -> Vec<Baseline> {
    let mut baselines = Vec::with_capacity(mean_returns.len());
    for group in mean_returns.chunks(num_generations) {
        let sum: f64 = group.iter().sum();
        let spread = unbiased_std(group);
        let others = (group.len() - 1) as f64;
        for own in group {
            let centre = if others == 0.0 { *own } else { (sum - own) / others };
            baselines.push(Baseline { centre, spread, scale: Some(1.0) });
        }
    }
    baselines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rloo_baseline_is_mean_of_other_rollouts() {
        let centres: Vec<f64> =
            baselines(&[1.0, 2.0, 6.0, 0.0, 0.0, 3.0], 3).iter().map(|one| one.centre).collect();
        assert_eq!(centres, [4.0, 3.5, 1.5, 1.5, 1.5, 0.0]);
        assert_eq!(baselines(&[5.0], 1)[0].advantage(5.0), 0.0, "nothing to learn from one alone");
    }
}

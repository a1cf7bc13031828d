//! Preference pairs drawn from the reward, for DPO: of each group the completion with the largest
//! R_k against the one with the smallest. A group whose R_k are all the same has none.

/// Two completions of a group, by their place in the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// The better one.
    pub chosen: usize,
    /// The worse one.
    pub rejected: usize,
}

/// One per group whose R_k differ; of several that are best or worst, the first.
///
/// # Panics
/// Where `num_generations` is 0.
#[must_use]
pub fn pairs(completion_means: &[f64], num_generations: usize) -> Vec<Pair> {
    let groups = completion_means.chunks(num_generations).enumerate();
    let of_group = |(number, group): (usize, &[f64])| {
        let places = 0..group.len();
        // `max_by` would take the last of several.
        let chosen = places.clone().rev().max_by(|&a, &b| group[a].total_cmp(&group[b]))?;
        let rejected = places.min_by(|&a, &b| group[a].total_cmp(&group[b]))?;
        let first = number * num_generations;
        (group[chosen] > group[rejected])
            .then_some(Pair { chosen: first + chosen, rejected: first + rejected })
    };
    groups.filter_map(of_group).collect()
}

/// `[B][T]`, as long as `returns`: 1 for the tokens of a chosen completion, −1 for those of a
/// rejected one, else 0.
pub(super) fn signs(returns: &[Vec<f64>], pairs: &[Pair]) -> Vec<Vec<f64>> {
    let mut signs: Vec<Vec<f64>> = returns.iter().map(|row| vec![0.0; row.len()]).collect();
    for pair in pairs {
        signs[pair.chosen].fill(1.0);
        signs[pair.rejected].fill(-1.0);
    }
    signs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_and_the_worst_of_a_group_are_a_pair() {
        let means = [0.0, 3.0, -1.0, 2.0, 2.0, 2.0, 1.0, 1.0, 0.5];
        let pair = |chosen, rejected| Pair { chosen, rejected };
        assert_eq!(pairs(&means, 3), [pair(1, 2), pair(6, 8)], "the second group has none");
        assert_eq!(pairs(&means[..2], 1), [], "no completion is better than itself");
    }
}

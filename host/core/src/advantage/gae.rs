//! Generalised advantage estimation (Schulman et al. 2016), of a return per token.
//!
//! ```text
//! r_t = S_t − γ S_{t+1} + P_t           so that Σ_l γ^l r_{t+l} = S_t + Σ_l γ^l P_{t+l}
//! δ_t = r_t + γ V_{t+1} − V_t
//! A_t = δ_t + γλ A_{t+1}                0 behind the last token, as R and V are there
//! ```
//!
//! P_t is what a token earned by itself, as a point of its sentence; S_t = R_t − P_t is the rest of
//! its return, which it shares with others. A point is an immediate reward: the tokens before it
//! earn it too, as in PPO on rewards. V_t is what the critic expects before token t. Without points
//! and with λ = 1 an advantage is R_t − V_t: credit stays with the tokens that earned it. With a
//! smaller λ the critic's later values take the place of what was earned later.

/// γ and λ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GaeSettings {
    /// γ, how much a later reward is worth.
    pub gamma: f64,
    /// λ, how far an advantage looks ahead before it trusts the critic.
    pub lambda: f64,
}

/// `[T]` advantages of one completion from its `returns` R, the `points` P among them, and the
/// critic's `values` V, all `[T]`; no points at all are an empty slice.
#[must_use]
pub fn gae(returns: &[f64], points: &[f64], values: &[f64], settings: &GaeSettings) -> Vec<f64> {
    let GaeSettings { gamma, lambda } = *settings;
    let (mut next_shared, mut next_value, mut next_advantage) = (0.0, 0.0, 0.0);
    let mut advantages: Vec<f64> = (0..returns.len().min(values.len()))
        .rev()
        .map(|token| {
            let point = points.get(token).copied().unwrap_or(0.0);
            let (shared, value) = (returns[token] - point, values[token]);
            let delta = shared - gamma * next_shared + point + gamma * next_value - value;
            (next_shared, next_value, next_advantage) =
                (shared, value, delta + gamma * lambda * next_advantage);
            next_advantage
        })
        .collect();
    advantages.reverse();
    advantages
}

/// Moves the advantages of a batch to mean 0 and variance 1, as TRL's PPO does; fewer than two
/// tokens are left as they are.
pub fn whiten(advantages: &mut [Vec<f64>]) {
    let tokens = advantages.iter().map(Vec::len).sum::<usize>() as f64;
    if tokens < 2.0 {
        return;
    }
    let mean = advantages.iter().flatten().sum::<f64>() / tokens;
    let variance = advantages.iter().flatten().map(|value| (value - mean).powi(2)).sum::<f64>()
        / (tokens - 1.0);
    let scale = (variance + 1e-8).sqrt();
    advantages.iter_mut().flatten().for_each(|value| *value = (*value - mean) / scale);
}

/// Whitened advantages, and what the critic should have said: V + A before whitening.
pub(super) fn of_batch(
    returns: &[Vec<f64>],
    points: &[Vec<f64>],
    values: &[Vec<f64>],
    settings: &GaeSettings,
) -> (Vec<Vec<f64>>, Option<Vec<Vec<f64>>>) {
    let points = |row: usize| points.get(row).map_or(&[][..], Vec::as_slice);
    let of_row = |(row, (returns, values)): (usize, (&Vec<f64>, &Vec<f64>))| {
        gae(returns, points(row), values, settings)
    };
    let mut advantages: Vec<Vec<f64>> =
        returns.iter().zip(values).enumerate().map(of_row).collect();
    let sum = |(a, b): (&Vec<f64>, &Vec<f64>)| a.iter().zip(b).map(|(a, b)| a + b).collect();
    let targets = advantages.iter().zip(values).map(sum).collect();
    whiten(&mut advantages);
    (advantages, Some(targets))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETURNS: [f64; 4] = [3.0, 3.1, 2.7, 2.0];
    const VALUES: [f64; 4] = [1.0, 2.5, 2.0, 3.0];

    #[test]
    fn what_leads_to_a_point_earns_it_too() {
        // R = [1, 1, 3, 1] with a point of 2 at the third token and V = 0: r = [0, 0, 2, 1] with γ
        // = 1. By hand, with λ = ½: A₃ = 1, A₂ = 2 + ½·1, A₁ = ½·2.5, A₀ = ½·1.25.
        let settings = GaeSettings { gamma: 1.0, lambda: 0.5 };
        let got = gae(&[1.0, 1.0, 3.0, 1.0], &[0.0, 0.0, 2.0, 0.0], &[0.0; 4], &settings);
        assert!(close(&got, &[0.625, 1.25, 2.5, 1.0]), "{got:?}");
    }

    fn close(got: &[f64], expected: &[f64]) -> bool {
        got.len() == expected.len() && got.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12)
    }

    #[test]
    fn with_lambda_1_credit_stays_where_it_was_earned() {
        for gamma in [1.0, 0.9] {
            let got = gae(&RETURNS, &[], &VALUES, &GaeSettings { gamma, lambda: 1.0 });
            assert!(close(&got, &[2.0, 0.6, 0.7, -1.0]), "{gamma}: {got:?}");
        }
    }

    #[test]
    fn with_lambda_0_it_is_one_steps_surprise() {
        let got = gae(&RETURNS, &[], &VALUES, &GaeSettings { gamma: 1.0, lambda: 0.0 });
        // r = −0.1, 0.4, 0.7, 2
        assert!(
            close(&got, &[-0.1 + 2.5 - 1.0, 0.4 + 2.0 - 2.5, 0.7 + 3.0 - 2.0, 2.0 - 3.0]),
            "{got:?}"
        );
    }

    #[test]
    fn between_them_it_is_the_discounted_sum() {
        let settings = GaeSettings { gamma: 0.9, lambda: 0.5 };
        let at = |row: &[f64], t: usize| row.get(t).copied().unwrap_or(0.0);
        let delta = |t| {
            at(&RETURNS, t) - 0.9 * at(&RETURNS, t + 1) + 0.9 * at(&VALUES, t + 1) - at(&VALUES, t)
        };
        let sum = |t: usize| (t..4).map(|s| 0.45f64.powi((s - t) as i32) * delta(s)).sum::<f64>();
        assert!(close(&gae(&RETURNS, &[], &VALUES, &settings), &[sum(0), sum(1), sum(2), sum(3)]));
    }

    #[test]
    fn targets_are_taken_before_whitening() {
        let (returns, values) =
            (vec![RETURNS.to_vec(), vec![1.0]], vec![VALUES.to_vec(), vec![0.5]]);
        let (advantages, targets) =
            of_batch(&returns, &[], &values, &GaeSettings { gamma: 1.0, lambda: 1.0 });
        assert!(close(&targets.unwrap().concat(), &returns.concat()));
        let all = advantages.concat();
        let square = |values: &[f64]| values.iter().map(|value| value * value).sum::<f64>();
        assert!(
            all.iter().sum::<f64>().abs() < 1e-12 && (square(&all) - 4.0).abs() < 1e-6,
            "{all:?}"
        );
        let mut alone = [vec![7.0]];
        whiten(&mut alone);
        assert_eq!(alone[0], [7.0]);
    }
}

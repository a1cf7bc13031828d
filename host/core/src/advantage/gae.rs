//! Generalised advantage estimation (Schulman et al. 2016), of a return per token.
//!
//! ```text
//! r_t = S_t − γ S_{t+1} + P_t           so that Σ_l γ^l r_{t+l} = S_t + Σ_l γ^l P_{t+l}
//! δ_t = r_t + γ V_{t+1} − V_t
//! A_t = δ_t + γλ A_{t+1}                S, V and A are 0 after the last token
//! ```
//!
//! P_t is the token's own reward; S_t = R_t − P_t is the rest of its return, which it shares with
//! other tokens. A token reward is an immediate reward: the tokens before it share it, as in PPO.
//! V_t is the critic's value before token t. Without token rewards and with λ = 1 an advantage is
//! R_t − V_t: credit stays with the tokens of the return. With a smaller λ the critic's later values
//! replace later rewards.

/// Discount and decay of generalised advantage estimation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GaeSettings {
    /// γ, the discount of later rewards, 0 to 1.
    pub gamma: f64,
    /// λ, the decay of later TD errors, 0 to 1: a smaller one relies more on the critic.
    pub lambda: f64,
}

/// Returns `[T]` advantages of one completion from its `returns` R, the `token_rewards` P among them,
/// and the critic's `values` V, all `[T]`.
#[must_use]
pub fn gae(
    returns: &[f64],
    token_rewards: &[f64],
    values: &[f64],
    settings: &GaeSettings,
) -> Vec<f64> {
    let GaeSettings { gamma, lambda } = *settings;
    let mut advantages = vec![0.0; returns.len()];
    let mut next_shared = 0.0;
    let mut next_value = 0.0;
    let mut next_advantage = 0.0;
    for t in (0..returns.len()).rev() {
        let shared = returns[t] - token_rewards[t];
        let reward = shared - gamma * next_shared + token_rewards[t];
        let delta = reward + gamma * next_value - values[t];
        advantages[t] = delta + gamma * lambda * next_advantage;
        next_shared = shared;
        next_value = values[t];
        next_advantage = advantages[t];
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    const RETURNS: [f64; 4] = [3.0, 3.1, 2.7, 2.0];
    const VALUES: [f64; 4] = [1.0, 2.5, 2.0, 3.0];

    #[test]
    fn gae_propagates_token_reward_backwards() {
        // R = [1, 1, 3, 1] with a token reward of 2 at the third token and V = 0: r = [0, 0, 2, 1] with γ
        // = 1. By hand, with λ = ½: A₃ = 1, A₂ = 2 + ½·1, A₁ = ½·2.5, A₀ = ½·1.25.
        let settings = GaeSettings { gamma: 1.0, lambda: 0.5 };
        let got = gae(&[1.0, 1.0, 3.0, 1.0], &[0.0, 0.0, 2.0, 0.0], &[0.0; 4], &settings);
        assert!(close(&got, &[0.625, 1.25, 2.5, 1.0]), "{got:?}");
    }

    fn close(got: &[f64], expected: &[f64]) -> bool {
        got.len() == expected.len() && got.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12)
    }

    #[test]
    fn lambda_one_gives_return_minus_value() {
        for gamma in [1.0, 0.9] {
            let got = gae(&RETURNS, &[0.0; 4], &VALUES, &GaeSettings { gamma, lambda: 1.0 });
            assert!(close(&got, &[2.0, 0.6, 0.7, -1.0]), "{gamma}: {got:?}");
        }
    }

    #[test]
    fn lambda_zero_gives_one_step_td_error() {
        let got = gae(&RETURNS, &[0.0; 4], &VALUES, &GaeSettings { gamma: 1.0, lambda: 0.0 });
        // r = −0.1, 0.4, 0.7, 2
        assert!(
            close(&got, &[-0.1 + 2.5 - 1.0, 0.4 + 2.0 - 2.5, 0.7 + 3.0 - 2.0, 2.0 - 3.0]),
            "{got:?}"
        );
    }

    #[test]
    fn gae_is_discounted_sum_of_td_errors() {
        let settings = GaeSettings { gamma: 0.9, lambda: 0.5 };
        let at = |row: &[f64], t: usize| row.get(t).copied().unwrap_or(0.0);
        let delta = |t| {
            at(&RETURNS, t) - 0.9 * at(&RETURNS, t + 1) + 0.9 * at(&VALUES, t + 1) - at(&VALUES, t)
        };
        let sum = |t: usize| (t..4).map(|s| 0.45f64.powi((s - t) as i32) * delta(s)).sum::<f64>();
        assert!(close(
            &gae(&RETURNS, &[0.0; 4], &VALUES, &settings),
            &[sum(0), sum(1), sum(2), sum(3)]
        ));
    }

    #[test]
    fn single_advantage_is_not_whitened() {
        let mut alone = [vec![7.0]];
        whiten(&mut alone);
        assert_eq!(alone[0], [7.0]);
    }
}

//! Advantages against those of TRL's own lines: `tests/vectors/trl/make.py`.

#[path = "../../../tests/vectors/mod.rs"]
mod vectors;

use corver_core::advantage::{GaeSettings, gae};
use corver_core::{Advantages, Estimator, ScoredCompletion, Signal};
use serde::Deserialize;
use vectors::{cases, close};

/// Completions with these returns, and no token rewards.
fn scored(returns: Vec<Vec<f64>>) -> Vec<ScoredCompletion> {
    let mut completions = Vec::new();
    for returns in returns {
        let token_rewards = vec![0.0; returns.len()];
        completions.push(ScoredCompletion { returns, token_rewards, ..Default::default() });
    }
    completions
}

fn estimate(
    estimator: Estimator,
    completions: &[ScoredCompletion],
    values: Option<&[Vec<f64>]>,
    num_generations: usize,
) -> Advantages {
    match estimator.signal(completions, values, num_generations).unwrap() {
        Signal::Advantages(advantages) => advantages,
        Signal::Pairs(pairs) => panic!("{pairs:?}"),
    }
}

#[test]
fn rloo_advantages_match_trl() {
    #[derive(Deserialize)]
    struct Case {
        num_generations: usize,
        /// R_k
        rewards: Vec<f64>,
        advantages: Vec<f64>,
    }
    for Case { num_generations, rewards, advantages } in
        cases(include_str!("../../../tests/vectors/trl/rloo.json"))
    {
        let completions = scored(rewards.iter().map(|reward| vec![*reward]).collect());
        let got = estimate(Estimator::Rloo, &completions, None, num_generations).values.concat();
        assert!(close(&got, &advantages, 1e-12), "{got:?}, expected {advantages:?}");
    }
}

#[test]
fn gae_advantages_and_targets_match_trl() {
    #[derive(Deserialize)]
    struct Case {
        gamma: f64,
        lambda: f64,
        returns: Vec<Vec<f64>>,
        values: Vec<Vec<f64>>,
        /// Whitened.
        advantages: Vec<Vec<f64>>,
        targets: Vec<Vec<f64>>,
    }
    for case in cases::<Case>(include_str!("../../../tests/vectors/trl/ppo.json")) {
        let settings = GaeSettings { gamma: case.gamma, lambda: case.lambda };
        let completions = scored(case.returns.clone());
        let got = estimate(Estimator::Gae(settings), &completions, Some(&case.values), 1);
        // TRL's n ⁄ (n − 1) is an f32.
        assert!(close(&got.values.concat(), &case.advantages.concat(), 1e-7), "{:?}", got.values);
        assert!(close(&got.targets.unwrap().concat(), &case.targets.concat(), 1e-12));
        if case.lambda == 1.0 {
            let own =
                gae(&case.returns[0], &completions[0].token_rewards, &case.values[0], &settings);
            let expected: Vec<f64> =
                case.returns[0].iter().zip(&case.values[0]).map(|(r, v)| r - v).collect();
            assert!(
                close(&own, &expected, 1e-12),
                "credit stays with the tokens that earned it: {own:?}"
            );
        }
    }
}

//! Advantages against those of TRL's own lines: `tests/vectors/trl/make.py`.

#[path = "../../../tests/vectors/mod.rs"]
mod vectors;

use corver_core::Estimator;
use corver_core::advantage::{GaeSettings, gae};
use serde::Deserialize;
use vectors::{cases, close};

#[test]
fn rloo() {
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
        let returns: Vec<Vec<f64>> = rewards.iter().map(|reward| vec![*reward]).collect();
        let got = Estimator::Rloo
            .advantages(&returns, &[], None, num_generations)
            .unwrap()
            .values
            .concat();
        assert!(close(&got, &advantages, 1e-12), "{got:?}, expected {advantages:?}");
    }
}

#[test]
fn generalised_advantages() {
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
        let got =
            Estimator::Gae(settings).advantages(&case.returns, &[], Some(&case.values), 1).unwrap();
        // TRL's n ⁄ (n − 1) is an f32.
        assert!(close(&got.values.concat(), &case.advantages.concat(), 1e-7), "{:?}", got.values);
        assert!(close(&got.targets.unwrap().concat(), &case.targets.concat(), 1e-12));
        if case.lambda == 1.0 {
            let own = gae(&case.returns[0], &[], &case.values[0], &settings);
            let expected: Vec<f64> =
                case.returns[0].iter().zip(&case.values[0]).map(|(r, v)| r - v).collect();
            assert!(
                close(&own, &expected, 1e-12),
                "credit stays with the tokens that earned it: {own:?}"
            );
        }
    }
}

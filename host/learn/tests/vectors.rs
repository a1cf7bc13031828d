//! Compares the loss with `tests/vectors/reference.py`, whose gradients are central differences.

#[path = "../../../tests/vectors/mod.rs"]
mod vectors;

use corver_learn::LossSettings;
use corver_learn::loss::{LossInputs, grpo_loss, row_weights};
use serde::Deserialize;
use tch::Tensor;
use vectors::{cases, close};

#[derive(Deserialize)]
struct Case {
    /// `[B][T]` log-probabilities, as the next two.
    new: Vec<Vec<f64>>,
    old: Vec<Vec<f64>>,
    #[serde(rename = "ref")]
    reference: Vec<Vec<f64>>,
    /// `[B][T]`
    advantages: Vec<Vec<f64>>,
    settings: LossSettings,
    max_length: usize,
    loss: f64,
    /// One number per token, row after row.
    gradient: Vec<f64>,
}

#[test]
fn loss_and_gradient_match_vectors() {
    for (number, case) in
        cases::<Case>(include_str!("../../../tests/vectors/losses.json")).into_iter().enumerate()
    {
        let flat = |rows: &[Vec<f64>]| Tensor::from_slice(&rows.concat());
        let lengths: Vec<usize> = case.new.iter().map(Vec::len).collect();
        let row_of: Vec<usize> =
            lengths.iter().enumerate().flat_map(|(row, &length)| vec![row; length]).collect();
        let weights = row_weights(case.settings.loss_type, &lengths, case.max_length, row_of.len());
        let integers = |values: &[usize]| {
            Tensor::from_slice(&values.iter().map(|&n| n as i64).collect::<Vec<_>>())
        };

        let new = flat(&case.new).set_requires_grad(true);
        let inputs = LossInputs {
            new: &new,
            old: Some(&flat(&case.old)),
            correction: None,
            reference: Some(&flat(&case.reference)),
            advantages: &flat(&case.advantages),
            weights: &Tensor::from_slice(
                &row_of.iter().map(|&row| weights[row]).collect::<Vec<_>>(),
            ),
            rows: &integers(&row_of),
            lengths: &integers(&lengths),
        };
        let loss = grpo_loss(&case.settings, &inputs).expect("shapes that fit").loss;
        assert!(
            close(&[loss.double_value(&[])], &[case.loss], 1e-11),
            "case {number}: {loss:?}, not {}",
            case.loss
        );
        let gradient = Tensor::run_backward(&[loss], &[&new], false, false).remove(0);
        let gradient: Vec<f64> = gradient.try_into().expect("one number per token");
        assert!(
            close(&gradient, &case.gradient, 1e-7),
            "case {number}: {gradient:?}, not {:?}",
            case.gradient
        );
    }
}

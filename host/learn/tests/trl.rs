//! Compares losses and gradients with those of TRL's trainers: `tests/vectors/trl/make.py`.

#[path = "../../../tests/vectors/mod.rs"]
mod vectors;

use corver_learn::critic::value_loss;
use corver_learn::dpo::{PairInputs, dpo_loss, margins};
use corver_learn::loss::{LossInputs, grpo_loss, row_weights};
use corver_learn::{LossSettings, LossType};
use serde::Deserialize;
use tch::Tensor;
use vectors::{cases, close};

type Rows = Vec<Vec<f64>>;

fn flat(rows: &Rows) -> Tensor {
    Tensor::from_slice(&rows.concat())
}

fn integers(values: &[usize]) -> Tensor {
    Tensor::from_slice(&values.iter().map(|&n| n as i64).collect::<Vec<_>>())
}

/// Returns the row of every token.
fn row_of(rows: &Rows) -> Vec<usize> {
    rows.iter().enumerate().flat_map(|(n, row)| vec![n; row.len()]).collect()
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    Vec::try_from(tensor).unwrap()
}

fn gradient(loss: &Tensor, input: &Tensor) -> Vec<f64> {
    numbers(&Tensor::run_backward(&[loss], &[input], false, false).remove(0))
}

/// Returns the loss, and its gradient by `new`.
fn clipped(
    settings: &LossSettings,
    new: &Rows,
    old: &Rows,
    reference: Option<&Rows>,
    advantages: &Rows,
    longest: usize,
) -> (f64, Vec<f64>) {
    let rows = row_of(new);
    let lengths: Vec<usize> = new.iter().map(Vec::len).collect();
    let weights = row_weights(settings.loss_type, &lengths, longest, rows.len());
    let leaf = flat(new).set_requires_grad(true);
    let reference = reference.map(flat);
    let inputs = LossInputs {
        new: &leaf,
        old: Some(&flat(old)),
        correction: None,
        reference: reference.as_ref(),
        advantages: &flat(advantages),
        weights: &Tensor::from_slice(&rows.iter().map(|&row| weights[row]).collect::<Vec<_>>()),
        rows: &integers(&rows),
        lengths: &integers(&lengths),
    };
    let loss = grpo_loss(settings, &inputs).unwrap().loss;
    (loss.double_value(&[]), gradient(&loss, &leaf))
}

#[test]
fn gspo_loss_and_gradient_match_trl() {
    #[derive(Deserialize)]
    struct Case {
        settings: LossSettings,
        max_length: usize,
        new: Rows,
        old: Rows,
        #[serde(rename = "ref")]
        reference: Rows,
        advantages: Rows,
        loss: f64,
        gradient: Rows,
    }
    for case in cases::<Case>(include_str!("../../../tests/vectors/trl/gspo.json")) {
        let (loss, gradient) = clipped(
            &case.settings,
            &case.new,
            &case.old,
            Some(&case.reference),
            &case.advantages,
            case.max_length,
        );
        assert!(
            close(&[loss], &[case.loss], 1e-12),
            "{:?}: {loss}, not {}",
            case.settings,
            case.loss
        );
        assert!(
            close(&gradient, &case.gradient.concat(), 1e-12),
            "{:?}: {gradient:?}",
            case.settings
        );
    }
}

/// TRL sums over the tokens of a completion, which is `dr_grpo` times the longest length.
#[test]
fn rloo_gradient_matches_trl() {
    #[derive(Deserialize)]
    struct Case {
        advantages: Vec<f64>,
        new: Rows,
        gradient: Rows,
    }
    for Case { advantages, new, gradient } in
        cases(include_str!("../../../tests/vectors/trl/rloo.json"))
    {
        let advantages = advantages.iter().zip(&new).map(|(a, row)| vec![*a; row.len()]).collect();
        let settings =
            LossSettings { loss_type: LossType::DrGrpo, beta: 0.0, ..LossSettings::default() };
        let (_, got) = clipped(&settings, &new, &new, None, &advantages, 7);
        let got: Vec<f64> = got.iter().map(|derivative| derivative * 7.0).collect();
        assert!(close(&got, &gradient.concat(), 1e-12), "{got:?}, not {gradient:?}");
    }
}

#[test]
fn dpo_loss_and_gradient_match_trl() {
    #[derive(Deserialize)]
    struct Case {
        beta: f64,
        chosen: Rows,
        rejected: Rows,
        ref_chosen: Rows,
        ref_rejected: Rows,
        margins: Vec<f64>,
        loss: f64,
        /// By the chosen, then by the rejected log-probabilities.
        gradient: Rows,
    }
    for case in cases::<Case>(include_str!("../../../tests/vectors/trl/dpo.json")) {
        let pairs = case.chosen.len();
        let signs = [(&case.chosen, 1.0), (&case.rejected, -1.0)]
            .map(|(rows, sign)| vec![sign; rows.concat().len()]);
        let leaf =
            flat(&[case.chosen.clone(), case.rejected.clone()].concat()).set_requires_grad(true);
        let inputs = PairInputs {
            new: &leaf,
            reference: &flat(&[case.ref_chosen, case.ref_rejected].concat()),
            signs: &Tensor::from_slice(&signs.concat()),
            pairs: &integers(&[row_of(&case.chosen), row_of(&case.rejected)].concat()),
            num_pairs: pairs,
        };
        let got = margins(&inputs, case.beta).unwrap();
        assert!(close(&numbers(&got.detach()), &case.margins, 1e-12), "{got:?}");
        let loss = dpo_loss(&got, pairs).unwrap();
        assert!(
            close(&[loss.double_value(&[])], &[case.loss], 1e-12),
            "{loss:?}, not {}",
            case.loss
        );
        assert!(close(&gradient(&loss, &leaf), &case.gradient.concat(), 1e-12));
    }
}

#[test]
fn ppo_losses_and_gradients_match_trl() {
    #[derive(Deserialize)]
    struct Case {
        advantages: Rows,
        targets: Rows,
        values: Rows,
        new: Rows,
        old: Rows,
        epsilon: f64,
        policy_loss: f64,
        policy_gradient: Rows,
        moved_values: Rows,
        value_clip: f64,
        value_loss: f64,
        /// Share of the tokens that are clipped.
        value_clipped: f64,
        value_gradient: Rows,
    }
    for case in cases::<Case>(include_str!("../../../tests/vectors/trl/ppo.json")) {
        let settings = LossSettings {
            loss_type: LossType::Bnpo,
            beta: 0.0,
            epsilon_low: case.epsilon,
            epsilon_high: case.epsilon,
            ..LossSettings::default()
        };
        let (loss, gradient) = clipped(&settings, &case.new, &case.old, None, &case.advantages, 1);
        assert!(close(&[loss], &[case.policy_loss], 1e-12), "{loss}, not {}", case.policy_loss);
        assert!(close(&gradient, &case.policy_gradient.concat(), 1e-12), "{gradient:?}");

        let values = flat(&case.moved_values).set_requires_grad(true);
        let tokens = values.numel() as f64;
        let weights = Tensor::from_slice(&vec![1.0 / tokens; tokens as usize]);
        let got = value_loss(
            &values,
            &flat(&case.values),
            &flat(&case.targets),
            &weights,
            case.value_clip,
        )
        .unwrap();
        assert!(close(&[got.loss.double_value(&[])], &[case.value_loss], 1e-12), "{:?}", got.loss);
        assert!(close(&[got.clipped / tokens], &[case.value_clipped], 1e-6));
        assert!(close(&self::gradient(&got.loss, &values), &case.value_gradient.concat(), 1e-12));
    }
}

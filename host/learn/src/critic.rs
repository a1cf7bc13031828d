//! PPO's critic: estimates the return of a token from the policy's last hidden state before it.
//!
//! ```text
//! V_t = w · h_t + b
//! L = ½ Σ_t c_t · max((V_t − T_t)², (clip(V_t, V_t^old − ε, V_t^old + ε) − T_t)²)
//! ```
//!
//! T_t is the target ([`corver_core::advantage::gae`]: the advantage plus V_t^old), c_t the weight
//! that the token has in the policy's loss. The clipped loss is TRL's (`PPOTrainer`, TRL 0.24;
//! Schulman et al. 2017 leave it open). Unlike there the critic is a linear layer that reads the
//! policy's hidden states and does not change them: no second model, and no gradient into the
//! adapters.

use corver_core::LearnSettings;
use tch::{Device, Kind, Tensor};

use crate::error::Result;
use crate::optimizer::AdamW;
use crate::schedule::CosineSchedule;

/// A linear layer in f32 with its optimiser; V is 0 at the start.
#[derive(Debug)]
pub(crate) struct Critic {
    /// Weight w `[D]`, f32.
    weight: Tensor,
    /// Bias b `[1]`, f32.
    bias: Tensor,
    optimizer: AdamW,
    schedule: CosineSchedule,
    /// Clip range ε of the value loss.
    clip: f64,
}

/// Names of the critic's parameters in a checkpoint.
pub(crate) const NAMES: [&str; 2] = ["weight", "bias"];

impl Critic {
    pub(crate) fn new(
        hidden_size: usize,
        settings: &LearnSettings,
        device: Device,
    ) -> Result<Self> {
        let options = (Kind::Float, device);
        let weight = Tensor::f_zeros([hidden_size as i64], options)?.set_requires_grad(true);
        let bias = Tensor::f_zeros([1], options)?.set_requires_grad(true);
        let steps = settings.total_steps * settings.updates_per_step();
        Ok(Self {
            optimizer: AdamW::new(
                vec![weight.shallow_clone(), bias.shallow_clone()],
                settings.optimizer,
            )?,
            weight,
            bias,
            schedule: CosineSchedule::new(
                settings.ppo.value_learning_rate,
                steps,
                settings.warmup_ratio,
            ),
            clip: settings.ppo.value_clip,
        })
    }

    /// Returns V `[n]` f32 of `hidden` `[n, D]`. The graph ends at the critic's own parameters.
    pub(crate) fn values(&self, hidden: &Tensor) -> Result<Tensor> {
        Ok(hidden.f_detach()?.f_to_kind(Kind::Float)?.f_mv(&self.weight)?.f_add(&self.bias)?)
    }

    /// Returns the loss of one micro-batch; `old`, `targets` and `weights` are `[n]` f32.
    pub(crate) fn loss(
        &self,
        hidden: &Tensor,
        old: &Tensor,
        targets: &Tensor,
        weights: &Tensor,
    ) -> Result<ValueLoss> {
        value_loss(&self.values(hidden)?, old, targets, weights, self.clip)
    }

    /// Returns weight and bias, in the order of [`NAMES`].
    pub(crate) fn parameters(&self) -> &[Tensor] {
        self.optimizer.parameters()
    }

    pub(crate) fn optimizer(&self) -> &AdamW {
        &self.optimizer
    }

    /// Takes one step along `gradients`.
    pub(crate) fn step(&mut self, gradients: &[Tensor]) -> Result<()> {
        let rate = self.schedule.rate(self.optimizer.steps());
        self.optimizer.step(gradients, rate)
    }

    /// Restores parameters, moments and steps; `take` returns a tensor of the checkpoint by name.
    pub(crate) fn restore(
        &mut self,
        mut take: impl FnMut(&str) -> Result<Tensor>,
        steps: usize,
    ) -> Result<()> {
        let parameters = NAMES.into_iter().map(&mut take).collect::<Result<Vec<_>>>()?;
        self.optimizer.restore(&parameters, |n, part| take(&format!("{}.{part}", NAMES[n])), steps)
    }
}

/// The critic's loss of a batch. Figures are sums, so that micro-batches add up.
#[derive(Debug)]
pub struct ValueLoss {
    /// Scalar with a graph to the values.
    pub loss: Tensor,
    /// Number of tokens whose loss is the clipped one.
    pub clipped: f64,
}

/// Returns L of the values V, the `old` ones before the update, the targets T and the weights c, all
/// `[n]`; `clip` is ε. Gradients go to `values`.
///
/// # Errors
/// Fails if the shapes do not fit.
pub fn value_loss(
    values: &Tensor,
    old: &Tensor,
    targets: &Tensor,
    weights: &Tensor,
    clip: f64,
) -> Result<ValueLoss> {
    let clipped_values = old.f_add(&values.f_sub(old)?.f_clamp(-clip, clip)?)?;
    let unclipped = values.f_sub(targets)?.f_square()?;
    let clipped = clipped_values.f_sub(targets)?.f_square()?;
    Ok(ValueLoss {
        loss: unclipped
            .f_maximum(&clipped)?
            .f_mul(weights)?
            .f_sum(values.f_kind()?)?
            .f_mul_scalar(0.5)?,
        clipped: clipped.f_gt_tensor(&unclipped)?.f_sum(Kind::Double)?.f_double_value(&[])?,
    })
}

/// Returns 1 − var(T − V) ⁄ var(T) over all tokens; 0 if all targets are equal.
pub(crate) fn explained_variance(values: &[Vec<f64>], targets: &[Vec<f64>]) -> f64 {
    let mut errors = Vec::new();
    for (target, value) in targets.iter().flatten().zip(values.iter().flatten()) {
        errors.push(target - value);
    }
    let total = squared_deviations(&targets.concat());
    if total == 0.0 { 0.0 } else { 1.0 - squared_deviations(&errors) / total }
}

fn squared_deviations(numbers: &[f64]) -> f64 {
    let mean = numbers.iter().sum::<f64>() / numbers.len().max(1) as f64;
    numbers.iter().map(|number| (number - mean).powi(2)).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use corver_core::AdamWSettings;

    use super::*;

    fn numbers(values: &[f64]) -> Tensor {
        Tensor::from_slice(values)
    }

    #[test]
    fn value_loss_clips_moved_values() {
        // Three tokens with the target 1: not moved; moved past the clip towards it; moved past the
        // clip away from it.
        let old = numbers(&[0.0, 0.0, 0.0]);
        let targets = numbers(&[1.0, 1.0, 1.0]);
        let values = numbers(&[0.0, 0.5, -0.5]).set_requires_grad(true);
        let ValueLoss { loss, clipped } =
            value_loss(&values, &old, &targets, &numbers(&[0.5, 0.25, 0.25]), 0.2).unwrap();
        let expected = 0.5 * (0.5 * 1.0 + 0.25 * 0.8f64.powi(2) + 0.25 * 1.5f64.powi(2));
        assert!((loss.double_value(&[]) - expected).abs() < 1e-12);
        assert_eq!(clipped, 1.0);
        let gradient = Tensor::run_backward(&[loss], &[&values], false, false).remove(0);
        assert_eq!(Vec::<f64>::try_from(gradient).unwrap(), [-0.5, 0.0, -0.375]);
    }

    #[test]
    fn critic_learns_linear_function_of_hidden_states() {
        let mut settings = LearnSettings {
            total_steps: 300,
            warmup_ratio: 0.0,
            optimizer: AdamWSettings::with_f32_moments(),
            ..LearnSettings::default()
        };
        settings.ppo.value_learning_rate = 3e-2;
        let mut critic = Critic::new(3, &settings, Device::Cpu).unwrap();
        let hidden = (Tensor::arange(60, (Kind::Float, Device::Cpu)) * 0.7).sin().view([20, 3]);
        let targets = hidden.mv(&Tensor::from_slice(&[1.0f32, -2.0, 0.5])) + 0.3;
        let weights = Tensor::full([20], 0.05, (Kind::Float, Device::Cpu));
        let mut last = f64::NAN;
        for _ in 0..300 {
            let old = critic.values(&hidden).unwrap().detach();
            let ValueLoss { loss, .. } = critic.loss(&hidden, &old, &targets, &weights).unwrap();
            last = loss.double_value(&[]);
            let gradients = Tensor::run_backward(&[loss], critic.parameters(), false, false);
            critic.step(&gradients).unwrap();
        }
        assert!(last < 1e-4, "{last}");
    }

    #[test]
    fn explained_variance_needs_informative_values() {
        let targets = [vec![1.0, 3.0], vec![5.0]];
        assert_eq!(explained_variance(&targets, &targets), 1.0);
        assert_eq!(explained_variance(&[vec![7.0, 7.0], vec![7.0]], &targets), 0.0);
        assert_eq!(explained_variance(&[vec![7.0]], &[vec![2.0]]), 0.0);
    }
}

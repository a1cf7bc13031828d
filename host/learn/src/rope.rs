//! Rotary position embedding (Su et al. 2021) in the half-split layout of Hugging Face checkpoints.

use tch::{Device, Kind, Tensor};

use crate::config::ModelConfig;
use crate::error::Result;

/// The frequencies of a model.
#[derive(Debug)]
pub(crate) struct Rope {
    /// `[head_dim / 2]` f32, radians per position.
    frequencies: Tensor,
    kind: Kind,
}

/// Cosines and sines for the positions of one pass, shared by its layers: `[T, 1, head_dim]` or, for one step, `[B, 1, 1, head_dim]`.
pub(crate) struct Angles {
    cos: Tensor,
    /// Negative in the first half.
    sin: Tensor,
}

impl Rope {
    pub(crate) fn new(config: &ModelConfig, kind: Kind, device: Device) -> Result<Self> {
        let frequencies: Vec<f32> = frequencies(config).into_iter().map(|f| f as f32).collect();
        Ok(Self { frequencies: Tensor::f_from_slice(&frequencies)?.f_to_device(device)?, kind })
    }

    /// `positions`: `[T]` (the same for every row) or `[B, 1]` (one step of rows at different positions), i64.
    pub(crate) fn angles(&self, positions: &Tensor) -> Result<Angles> {
        let angles = positions.f_unsqueeze(-1)?.f_unsqueeze(-1)?.f_mul(&self.frequencies)?; // f32
        let (cos, sin) = (angles.f_cos()?, angles.f_sin()?);
        let both = |left: &Tensor, right: &Tensor| Tensor::f_cat(&[left, right], -1)?.f_to_kind(self.kind);
        Ok(Angles { cos: both(&cos, &cos)?, sin: both(&sin.f_neg()?, &sin)? })
    }
}

impl Angles {
    /// Rotates `x` `[B, T, heads, head_dim]`; dimension i is paired with i + head_dim / 2.
    pub(crate) fn rotate(&self, x: &Tensor) -> Result<Tensor> {
        let width = x.size().last().copied().unwrap_or(0);
        let swapped = x.f_roll(width / 2, -1)?;
        Ok(x.f_mul(&self.cos)?.f_addcmul(&swapped, &self.sin)?)
    }
}

/// θ^(−2i/d), with Llama 3.1's stretching where the configuration has it: long waves by `factor`, short ones not at
/// all, and a linear blend (in the number of waves per context) between.
fn frequencies(config: &ModelConfig) -> Vec<f64> {
    let d = config.head_dim;
    (0..d / 2)
        .map(|i| {
            let f = config.rope_theta.powf(-2.0 * i as f64 / d as f64);
            let Some(s) = config.rope_scaling else { return f };
            let waves = s.original_max_position_embeddings * f / std::f64::consts::TAU;
            if waves < s.low_freq_factor {
                f / s.factor
            } else if waves > s.high_freq_factor {
                f
            } else {
                let share = (waves - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
                share * f + (1.0 - share) * f / s.factor
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Family, Llama3Scaling};

    fn config(rope_scaling: Option<Llama3Scaling>) -> ModelConfig {
        ModelConfig {
            family: Family::Llama,
            vocab_size: 4,
            hidden_size: 8,
            intermediate_size: 8,
            num_layers: 1,
            num_heads: 1,
            num_kv_heads: 1,
            head_dim: 8,
            max_positions: 64,
            norm_eps: 1e-6,
            rope_theta: 10_000.0,
            rope_scaling,
            tie_embeddings: true,
        }
    }

    #[test]
    fn frequencies_fall_by_powers_of_theta() {
        for (got, expected) in frequencies(&config(None)).iter().zip([1.0, 0.1, 0.01, 0.001]) {
            assert!((got - expected).abs() < 1e-12);
        }
    }

    #[test]
    fn llama3_stretches_long_waves_only() {
        let scaling = Llama3Scaling {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position_embeddings: 1000.0,
        };
        // Waves per 1,000 positions: 159, 15.9, 1.59, 0.159.
        let got = frequencies(&config(Some(scaling)));
        let share = (1000.0 * 0.01 / std::f64::consts::TAU - 1.0) / 3.0;
        let expected = [1.0, 0.1, 0.01 * (share + (1.0 - share) / 8.0), 0.001 / 8.0];
        for (got, expected) in got.iter().zip(expected) {
            assert!((got - expected).abs() < 1e-12, "{got} {expected}");
        }
    }

    #[test]
    fn rotation_turns_pairs_by_the_angle() {
        let rope = Rope::new(&config(None), Kind::Float, Device::Cpu).unwrap();
        let x = Tensor::from_slice(&[1.0f32, 0., 0., 0., 0., 0., 0., 0.]).view([1, 1, 1, 8]);
        let y = rope.angles(&Tensor::from_slice(&[3i64])).unwrap().rotate(&x).unwrap();
        let y: Vec<f32> = y.view(-1).try_into().unwrap();
        assert!((y[0] - 3f32.cos()).abs() < 1e-6 && (y[4] - 3f32.sin()).abs() < 1e-6, "{y:?}");
    }
}

//! Rotary position embedding (Su et al. 2021) in the half-split layout of Hugging Face checkpoints.

use corver_pretrained::ModelConfig;
use tch::{Device, Kind, Tensor};

use crate::error::Result;

/// The rotation frequencies of a model.
#[derive(Debug)]
pub(crate) struct RotaryEmbedding {
    /// `[head_dim / 2]` f32, radians per position.
    frequencies: Tensor,
    kind: Kind,
}

/// Cosines and sines of the positions of one pass, which its layers share: `[T, 1, head_dim]`, or
/// `[B, 1, 1, head_dim]` for a decoding step.
pub(crate) struct Angles {
    cos: Tensor,
    /// Sines, negated in the first half of the dimensions.
    sin: Tensor,
}

impl RotaryEmbedding {
    pub(crate) fn new(config: &ModelConfig, kind: Kind, device: Device) -> Result<Self> {
        let frequencies: Vec<f32> =
            config.rope_frequencies().into_iter().map(|f| f as f32).collect();
        Ok(Self { frequencies: Tensor::f_from_slice(&frequencies)?.f_to_device(device)?, kind })
    }

    /// Computes the angles of `positions` i64: `[T]` (the same for every row), or `[B, 1]` (a decoding
    /// step of rows at different positions).
    pub(crate) fn angles(&self, positions: &Tensor) -> Result<Angles> {
        let angles = positions.f_unsqueeze(-1)?.f_unsqueeze(-1)?.f_mul(&self.frequencies)?; // f32
        let cos = angles.f_cos()?;
        let sin = angles.f_sin()?;
        Ok(Angles {
            cos: Tensor::f_cat(&[&cos, &cos], -1)?.f_to_kind(self.kind)?,
            sin: Tensor::f_cat(&[&sin.f_neg()?, &sin], -1)?.f_to_kind(self.kind)?,
        })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tiny_config;

    #[test]
    fn rope_rotates_pairs_by_position_angle() {
        let rope = RotaryEmbedding::new(
            &ModelConfig { head_dim: 8, ..tiny_config("llama") },
            Kind::Float,
            Device::Cpu,
        )
        .unwrap();
        let x = Tensor::from_slice(&[1.0f32, 0., 0., 0., 0., 0., 0., 0.]).view([1, 1, 1, 8]);
        let y = rope.angles(&Tensor::from_slice(&[3i64])).unwrap().rotate(&x).unwrap();
        let y: Vec<f32> = y.view(-1).try_into().unwrap();
        assert!((y[0] - 3f32.cos()).abs() < 1e-6 && (y[4] - 3f32.sin()).abs() < 1e-6, "{y:?}");
    }
}

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
/// `[B, columns, 1, head_dim]`; a decoding step has one column.
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

    /// Computes the angles of `positions` i64: `[T]` (the same for every row), or `[B, columns]` (rows
    /// at different positions).
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
    /// Returns the angles of the column `n` of positions `[B, columns]`.
    pub(crate) fn column(&self, n: i64) -> Result<Self> {
        Ok(Self { cos: self.cos.f_narrow(1, n, 1)?, sin: self.sin.f_narrow(1, n, 1)? })
    }

    /// Returns cosines and sines; the sines are negated in the first half of the dimensions.
    pub(crate) fn cos_sin(&self) -> [&Tensor; 2] {
        [&self.cos, &self.sin]
    }

    /// Rotates `x` `[B, T, heads, head_dim]`; dimension i is paired with i + head_dim / 2.
    pub(crate) fn rotate(&self, x: &Tensor) -> Result<Tensor> {
        let width = x.size().last().copied().unwrap_or(0);
        let swapped = x.f_roll(width / 2, -1)?;
        Ok(x.f_mul(&self.cos)?.f_addcmul(&swapped, &self.sin)?)
    }

    /// Rotates the first `queries` heads of `x` `[B, T, heads, head_dim]`, and the next `keys` heads.
    /// Returns both; the rotated keys are also `key_out`, if there is one. The heads after them are
    /// ignored: the fewest operations for a product of queries, keys and values.
    pub(crate) fn rotate_both(
        &self,
        x: &Tensor,
        queries: i64,
        keys: i64,
        key_out: Option<&Tensor>,
    ) -> Result<(Tensor, Tensor)> {
        let width = x.size().last().copied().unwrap_or(0);
        let swapped = x.f_roll(width / 2, -1)?;
        let scaled = x.f_narrow(2, 0, queries + keys)?.f_mul(&self.cos)?;
        let [scaled_q, swapped_q] = [&scaled, &swapped].map(|part| part.f_narrow(2, 0, queries));
        let [scaled_k, swapped_k] = [&scaled, &swapped].map(|part| part.f_narrow(2, queries, keys));
        let q = scaled_q?.f_addcmul(&swapped_q?, &self.sin)?;
        let k = match key_out {
            Some(out) => scaled_k?.f_addcmul_out(out, &swapped_k?, &self.sin)?,
            None => scaled_k?.f_addcmul(&swapped_k?, &self.sin)?,
        };
        Ok((q, k))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tiny_config;

    #[test]
    fn queries_and_keys_rotate_together_as_separately() {
        let config = ModelConfig { head_dim: 8, ..tiny_config("llama") };
        let rope = RotaryEmbedding::new(&config, Kind::Float, Device::Cpu).unwrap();
        let angles = rope.angles(&Tensor::from_slice(&[3i64, 5])).unwrap();
        let x = Tensor::arange(2 * 5 * 8, (Kind::Float, Device::Cpu)).sin().view([1, 2, 5, 8]);
        let out = Tensor::zeros([1, 1, 2, 8], (Kind::Float, Device::Cpu)).transpose(1, 2);
        for key_out in [None, Some(&out)] {
            let (q, k) = angles.rotate_both(&x, 3, 1, key_out).unwrap();
            assert_eq!(q, angles.rotate(&x.narrow(2, 0, 3)).unwrap());
            assert_eq!(k, angles.rotate(&x.narrow(2, 3, 1)).unwrap());
        }
        assert_eq!(out, angles.rotate(&x.narrow(2, 3, 1)).unwrap());
    }

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

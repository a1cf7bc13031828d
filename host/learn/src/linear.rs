//! A linear layer of the base model.

use tch::Tensor;

use crate::error::Result;
use crate::weights::{Role, Weights};

/// y = x Wᵀ + b.
#[derive(Debug)]
pub(crate) struct Linear {
    /// `[out, in]`
    pub(crate) weight: Tensor,
    /// `[out]`
    pub(crate) bias: Option<Tensor>,
}

impl Linear {
    pub(crate) fn build(name: &str, out: usize, input: usize, biased: bool, weights: &mut Weights) -> Result<Self> {
        let weight = weights.take(&format!("{name}.weight"), Role::Matrix, &[out, input])?;
        let bias = match biased {
            true => Some(weights.take(&format!("{name}.bias"), Role::Bias, &[out])?),
            false => None,
        };
        Ok(Self { weight, bias })
    }

    /// `x` `[…, in]` → `[…, out]`.
    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.f_linear(&self.weight, self.bias.as_ref())?)
    }
}

//! A linear layer of the base model, with its adapter.

use tch::Tensor;

use crate::error::Result;
use crate::lora::{Adapter, add_adapter};
use crate::weights::{Role, Weights};

/// y = x Wᵀ + b, plus the adapter's share.
#[derive(Debug)]
pub(crate) struct Linear {
    /// Hugging Face name without `.weight`.
    pub(crate) name: String,
    /// `[out, in]`
    pub(crate) weight: Tensor,
    /// `[out]`
    pub(crate) bias: Option<Tensor>,
    pub(crate) adapter: Option<Adapter>,
}

impl Linear {
    pub(crate) fn build(name: String, out: usize, input: usize, biased: bool, weights: &mut Weights) -> Result<Self> {
        let weight = weights.take(&format!("{name}.weight"), Role::Matrix, &[out, input])?;
        let bias = match biased {
            true => Some(weights.take(&format!("{name}.bias"), Role::Bias, &[out])?),
            false => None,
        };
        Ok(Self { name, weight, bias, adapter: None })
    }

    /// `x` `[…, in]` → `[…, out]`.
    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let base = x.f_linear(&self.weight, self.bias.as_ref())?;
        match self.adapter.as_ref().filter(|adapter| adapter.on) {
            Some(adapter) => add_adapter(&base, x, &adapter.a, &adapter.b, adapter.scaling),
            None => Ok(base),
        }
    }
}

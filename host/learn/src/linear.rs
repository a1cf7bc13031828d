//! Linear layers of the base model that read the same input, with their adapters.

use std::cell::RefCell;

use tch::{Device, Kind, Tensor};

use crate::error::Result;
use crate::lora::Adapter;
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

/// Linear layers with one input. The first halves of their adapters are one product.
#[derive(Debug)]
pub(crate) struct Linears<const N: usize> {
    pub(crate) each: [Linear; N],
    /// What the adapters multiply with, while nothing changes it.
    frozen: RefCell<Option<Factors>>,
}

/// What adapters multiply with, in the precision of the base weights.
#[derive(Debug)]
struct Factors {
    /// `[Σ r, in]`, the A of every adapter that takes part.
    a: Tensor,
    /// Per layer, B times the scaling `[out, r]`.
    b: Vec<Option<Tensor>>,
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

    fn active(&self) -> Option<&Adapter> {
        self.adapter.as_ref().filter(|adapter| adapter.on)
    }
}

impl<const N: usize> Linears<N> {
    pub(crate) fn new(each: [Linear; N]) -> Self {
        Self { each, frozen: RefCell::new(None) }
    }

    /// `x` `[…, in]` → `[…, out]` of each.
    pub(crate) fn forward(&self, x: &Tensor) -> Result<[Tensor; N]> {
        let frozen = self.frozen.borrow();
        let computed;
        let factors = match &*frozen {
            Some(factors) => Some(factors),
            None => {
                computed = self.factors(x.f_kind()?)?;
                computed.as_ref()
            }
        };
        let mut outputs = Vec::with_capacity(N);
        for linear in &self.each {
            outputs.push(project(x, &linear.weight, linear.bias.as_ref())?);
        }
        if let Some(Factors { a, b }) = factors {
            let low = project(x, a, None)?; // […, Σ r]
            let mut first = 0;
            for (output, b) in outputs.iter_mut().zip(b) {
                if let Some(b) = b {
                    let r = b.size()[1];
                    *output = add_projection(output, &low.f_narrow(-1, first, r)?, b)?;
                    first += r;
                }
            }
        }
        Ok(outputs.try_into().unwrap_or_else(|_| unreachable!("every layer has pushed its output")))
    }

    fn factors(&self, kind: Kind) -> Result<Option<Factors>> {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for linear in &self.each {
            b.push(match linear.active() {
                None => None,
                Some(adapter) => {
                    a.push(adapter.a.f_to_kind(kind)?);
                    Some(adapter.b.f_mul_scalar(adapter.scaling)?.f_to_kind(kind)?)
                }
            });
        }
        Ok(match a.len() {
            0 => None,
            1 => Some(Factors { a: a.remove(0), b }),
            _ => Some(Factors { a: Tensor::f_cat(&a, 0)?, b }),
        })
    }

    /// Until `thaw`, the adapters are taken as they are now; without a graph.
    pub(crate) fn freeze(&self) -> Result<()> {
        let factors = match self.each.first() {
            None => None,
            Some(linear) => self.factors(linear.weight.f_kind()?)?,
        };
        self.frozen.replace(factors);
        Ok(())
    }

    pub(crate) fn thaw(&self) {
        self.frozen.replace(None);
    }
}

/// Rows up to which a weight is the left factor of a product on the CPU.
const FEW_ROWS: i64 = 256;

/// x Wᵀ + b: `x` `[…, in]`, `weight` `[out, in]`, `bias` `[out]` → `[…, out]`.
///
/// Few rows on the CPU are computed as (W xᵀ)ᵀ. A matrix product first copies its right side into the order in which it is
/// going to read it; for few rows this takes as long as the product itself where that side is the weight.
pub(crate) fn project(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    if !has_few_rows(x) {
        return Ok(x.f_linear(weight, bias)?);
    }
    let y = match bias {
        None => weight.f_mm(&columns(x)?)?,
        Some(bias) => bias.f_unsqueeze(1)?.f_addmm(weight, &columns(x)?)?,
    };
    as_rows(&y, x)
}

/// y + x Wᵀ: `y` `[…, out]`, `x` `[…, in]`, `weight` `[out, in]`.
fn add_projection(y: &Tensor, x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    if has_few_rows(x) {
        return as_rows(&columns(y)?.f_addmm(weight, &columns(x)?)?, x);
    }
    let sum = columns(y)?.f_transpose(0, 1)?.f_addmm(&columns(x)?.f_transpose(0, 1)?, &weight.f_transpose(0, 1)?)?;
    Ok(sum.f_view(y.size().as_slice())?)
}

fn has_few_rows(x: &Tensor) -> bool {
    x.device() == Device::Cpu && x.size().iter().rev().skip(1).product::<i64>() <= FEW_ROWS
}

/// `[…, n]` → `[n, …]`, of two dimensions.
fn columns(x: &Tensor) -> Result<Tensor> {
    let width = x.size().last().copied().unwrap_or(1);
    Ok(x.f_reshape([-1, width])?.f_transpose(0, 1)?)
}

/// `y` `[n, rows]` → `[…, n]`, with the other dimensions of `like`.
fn as_rows(y: &Tensor, like: &Tensor) -> Result<Tensor> {
    let mut size = like.size();
    if let Some(last) = size.last_mut() {
        *last = y.size()[0];
    }
    Ok(y.f_transpose(0, 1)?.f_view(size.as_slice())?)
}

//! Linear layers of the base model that read the same input, with their adapters.

use std::cell::RefCell;

use tch::{Device, Kind, Tensor};

use crate::error::Result;
use crate::lora::Adapter;
use crate::weights::{WeightRole, Weights};

/// A linear layer y = x Wᵀ + b with an optional adapter.
#[derive(Debug)]
pub(crate) struct LinearLayer {
    /// Hugging Face name without `.weight`.
    pub(crate) name: String,
    /// Weight W `[out, in]` of the base model.
    pub(crate) weight: Tensor,
    /// b `[out]`; `None` if the layer has no bias.
    pub(crate) bias: Option<Tensor>,
    pub(crate) adapter: Option<Adapter>,
}

/// Linear layers with one input. Multiplying with A is one product for all their adapters.
#[derive(Debug)]
pub(crate) struct LinearGroup<const N: usize> {
    pub(crate) linears: [LinearLayer; N],
    /// Converted adapters; `None`: they are converted in every pass.
    frozen: RefCell<Option<AdapterFactors>>,
}

/// Adapter matrices of a group, in the precision of the base weights.
#[derive(Debug)]
struct AdapterFactors {
    /// `[Σ r, in]`, the A of every active adapter.
    a: Tensor,
    /// Per layer, B times the scaling `[out, r]`; `None` for a layer without active adapter.
    b: Vec<Option<Tensor>>,
}

impl LinearLayer {
    pub(crate) fn build(
        name: String,
        out: usize,
        input: usize,
        has_bias: bool,
        weights: &mut Weights,
    ) -> Result<Self> {
        let weight = weights.take(&format!("{name}.weight"), WeightRole::Matrix, &[out, input])?;
        let bias = match has_bias {
            true => Some(weights.take(&format!("{name}.bias"), WeightRole::Bias, &[out])?),
            false => None,
        };
        Ok(Self { name, weight, bias, adapter: None })
    }
}

impl<const N: usize> LinearGroup<N> {
    pub(crate) fn new(linears: [LinearLayer; N]) -> Self {
        Self { linears, frozen: RefCell::new(None) }
    }

    /// `x` `[…, in]` → `[…, out]` of each layer.
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
        for linear in &self.linears {
            outputs.push(project(x, &linear.weight, linear.bias.as_ref())?);
        }
        if let Some(AdapterFactors { a, b }) = factors {
            let low_rank = project(x, a, None)?; // […, Σ r]
            let mut first = 0;
            for (output, factor) in outputs.iter_mut().zip(b) {
                if let Some(factor) = factor {
                    let r = factor.size()[1];
                    *output = add_projection(output, &low_rank.f_narrow(-1, first, r)?, factor)?;
                    first += r;
                }
            }
        }
        Ok(outputs.try_into().unwrap_or_else(|_| unreachable!("every layer has pushed its output")))
    }

    /// Converts the active adapters; `None` if there are none.
    fn factors(&self, kind: Kind) -> Result<Option<AdapterFactors>> {
        let mut a = Vec::new();
        let mut b = Vec::new();
        for linear in &self.linears {
            let active = linear.adapter.as_ref().and_then(Adapter::active);
            b.push(match active {
                None => None,
                Some(active) => {
                    a.push(active.a.f_to_kind(kind)?);
                    Some(active.b.f_mul_scalar(active.scaling)?.f_to_kind(kind)?)
                }
            });
        }
        Ok(match a.len() {
            0 => None,
            1 => Some(AdapterFactors { a: a.remove(0), b }),
            _ => Some(AdapterFactors { a: Tensor::f_cat(&a, 0)?, b }),
        })
    }

    /// Converts the adapters once, without a graph, for all passes until
    /// [`LinearGroup::thaw_adapters`]. Changes until then have no effect.
    pub(crate) fn freeze_adapters(&self) -> Result<()> {
        let factors = match self.linears.first() {
            None => None,
            Some(linear) => self.factors(linear.weight.f_kind()?)?,
        };
        self.frozen.replace(factors);
        Ok(())
    }

    /// Ends [`LinearGroup::freeze_adapters`].
    pub(crate) fn thaw_adapters(&self) {
        self.frozen.replace(None);
    }
}

/// Most rows for which a weight is the left factor of a product on the CPU.
const FEW_ROWS: i64 = 256;

/// Returns x Wᵀ + b: `x` `[…, in]`, `weight` `[out, in]`, `bias` `[out]` → `[…, out]`.
///
/// Few rows on the CPU are computed as (W xᵀ)ᵀ. A matrix product first copies its right factor into
/// the order in which it reads it. For few rows this takes as long as the product itself if that
/// factor is the weight.
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

/// Returns y + x Wᵀ: `y` `[…, out]`, `x` `[…, in]`, `weight` `[out, in]`.
fn add_projection(y: &Tensor, x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    if has_few_rows(x) {
        return as_rows(&columns(y)?.f_addmm(weight, &columns(x)?)?, x);
    }
    let sum = columns(y)?
        .f_transpose(0, 1)?
        .f_addmm(&columns(x)?.f_transpose(0, 1)?, &weight.f_transpose(0, 1)?)?;
    Ok(sum.f_view(y.size().as_slice())?)
}

fn has_few_rows(x: &Tensor) -> bool {
    x.device() == Device::Cpu && x.size().iter().rev().skip(1).product::<i64>() <= FEW_ROWS
}

/// Transposes `[…, n]` to a matrix `[n, …]`.
fn columns(x: &Tensor) -> Result<Tensor> {
    let width = x.size().last().copied().unwrap_or(1);
    Ok(x.f_reshape([-1, width])?.f_transpose(0, 1)?)
}

/// Transposes `y` `[n, rows]` to `[…, n]`, with the other dimensions of `like`.
fn as_rows(y: &Tensor, like: &Tensor) -> Result<Tensor> {
    let mut size = like.size();
    if let Some(last) = size.last_mut() {
        *last = y.size()[0];
    }
    Ok(y.f_transpose(0, 1)?.f_view(size.as_slice())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lora::merged_weight;
    use crate::testing::golden::{check_all, close, numbers, same};
    use corver_core::LoraSettings;
    use serde_json::Value;

    fn matrix(value: &Value) -> Tensor {
        let rows: Vec<Vec<f64>> = value.as_array().unwrap().iter().map(numbers).collect();
        Tensor::from_slice(&rows.concat()).view([rows.len() as i64, rows[0].len() as i64])
    }

    fn close_to(what: &str, got: &Tensor, expected: &Value) -> std::result::Result<(), String> {
        let far = (got.detach() - matrix(expected)).abs().max().double_value(&[]);
        close(what, far, 0.0, 1e-10, 0.0)
    }

    fn layers<const N: usize>(row: &Value) -> LinearGroup<N> {
        let lora = LoraSettings {
            r: row["r"].as_u64().unwrap() as usize,
            alpha: row["alpha"].as_f64().unwrap(),
        };
        LinearGroup::new(std::array::from_fn(|n| LinearLayer {
            name: n.to_string(),
            weight: matrix(&row["W"]),
            bias: (!row["bias"].is_null()).then(|| Tensor::from_slice(&numbers(&row["bias"]))),
            adapter: Some(Adapter::new(matrix(&row["A"]), matrix(&row["B"]), &lora)),
        }))
    }

    /// Compares with PEFT's layer: two layers that share the product with A give its result twice.
    /// `make conformance` runs them.
    #[test]
    #[ignore = "needs CORVER_SHARED: `make conformance`"]
    fn lora_layer_matches_peft() {
        check_all("lora", |row| {
            let x = matrix(&row["x"]).set_requires_grad(true);
            let pair = layers::<2>(row);
            let outputs = pair.forward(&x).map_err(|e| e.to_string())?;
            for (layer, y) in pair.linears.iter().zip(outputs) {
                close_to("y", &y, &row["y"])?;
                let Adapter { a, b, scaling, .. } = layer.adapter.as_ref().unwrap();
                same("scaling", *scaling, row["scaling"].as_f64().unwrap())?;
                let loss = (y * matrix(&row["grad_y"])).sum(Kind::Double);
                let gradients = Tensor::run_backward(&[loss], &[a, b, &x], true, false);
                for (key, got) in ["grad_A", "grad_B", "grad_x"].iter().zip(&gradients) {
                    close_to(key, got, &row[*key])?;
                }
                let merged = merged_weight(&layer.weight, &a.detach(), &b.detach(), *scaling);
                close_to("merged_W", &merged.map_err(|e| e.to_string())?, &row["merged_W"])?;
            }
            Ok(())
        });
    }

    #[test]
    fn projection_is_independent_of_row_count() {
        let noise = |rows: i64, columns: i64| {
            (Tensor::arange(rows * columns, (Kind::Float, Device::Cpu)) * 0.7).sin()
        };
        let x = noise(FEW_ROWS + 10, 24).view([FEW_ROWS + 10, 24]);
        let (weight, bias) = (noise(7, 24).view([7, 24]), noise(1, 7));
        for bias in [None, Some(&bias)] {
            let many = project(&x, &weight, bias).unwrap();
            let few = project(&x.narrow(0, 0, 9), &weight, bias).unwrap();
            assert!((many.narrow(0, 0, 9) - few).abs().max().double_value(&[]) < 1e-5);
            let sum = add_projection(&many, &x, &weight).unwrap().narrow(0, 0, 9);
            let few = add_projection(&many.narrow(0, 0, 9), &x.narrow(0, 0, 9), &weight).unwrap();
            assert!((sum - few).abs().max().double_value(&[]) < 1e-5);
        }
    }

    #[test]
    fn frozen_layers_ignore_adapter_changes() {
        let model =
            crate::testing::with_random_adapter("llama", &LoraSettings { r: 3, alpha: 6.0 });
        let batch = model.batch(&[&[1, 5, 2]]).unwrap();
        let differs = |before: &Tensor| {
            (model.hidden(&batch).unwrap() - before).abs().max().double_value(&[]) > 1e-4
        };
        let _guard = tch::no_grad_guard();
        let before = model.hidden(&batch).unwrap();
        let frozen = model.freeze_adapters().unwrap();
        for (_, b) in
            model.lora_parameters().into_iter().filter(|(name, _)| name.contains("lora_B"))
        {
            let _ = b.shallow_clone().zero_();
        }
        assert!(!differs(&before));
        drop(frozen);
        assert!(differs(&before));
    }
}

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
    /// `[Σ out, in]`, the weights of all layers; those of the layers are views of it.
    weight: Tensor,
    /// `[Σ out]`, the biases of all layers; `None` if they have none.
    bias: Option<Tensor>,
    /// Converted adapters; `None`: they are converted in every pass.
    frozen: RefCell<Option<FrozenFactors>>,
}

/// Adapter matrices of a group, in the precision of the base weights.
#[derive(Debug)]
struct AdapterFactors {
    /// `[Σ r, in]`, the A of every active adapter.
    a: Tensor,
    b: OutputFactors,
}

/// The B of a group's adapters, times their scaling.
#[derive(Debug)]
enum OutputFactors {
    /// `[out, r]` per layer; `None` for a layer without active adapter.
    Separate(Vec<Option<Tensor>>),
    /// `[Σ out, Σ r]`, those of the layers on the diagonal: one product for a GPU, and few more
    /// numbers.
    Diagonal(Tensor),
}

/// Adapter matrices for passes without a graph; `None` if no adapter is active.
#[derive(Debug)]
struct FrozenFactors(Option<AdapterFactors>);

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

impl LinearGroup<1> {
    /// Returns `residual` plus the output for `x`. On a GPU, products without a graph are added in
    /// place, which is one operation less.
    pub(crate) fn add_to(&self, residual: Tensor, x: &Tensor) -> Result<Tensor> {
        match &*self.frozen.borrow() {
            Some(FrozenFactors(factors)) if self.bias.is_none() && x.device().is_cuda() => {
                let input = Factor::new(x)?;
                let mut sum = Factor::new(&residual)?.matrix; // a view
                input.add_product(&mut sum, &input.matrix, &self.weight)?;
                if let Some(AdapterFactors { a, b: OutputFactors::Diagonal(b) }) = factors {
                    input.add_product(&mut sum, &input.product(a, None)?, b)?;
                }
                Ok(residual)
            }
            _ => {
                let [y] = self.forward(x)?;
                Ok(residual.f_add(&y)?)
            }
        }
    }
}

impl<const N: usize> LinearGroup<N> {
    /// Joins the weights of the layers, which remain as views.
    pub(crate) fn new(mut linears: [LinearLayer; N]) -> Result<Self> {
        let weights: Vec<&Tensor> = linears.iter().map(|linear| &linear.weight).collect();
        let biases: Vec<&Tensor> =
            linears.iter().filter_map(|linear| linear.bias.as_ref()).collect();
        let weight = joined(&weights)?;
        let bias = if biases.is_empty() { None } else { Some(joined(&biases)?) };
        let mut first = 0;
        for linear in &mut linears {
            let out = linear.weight.size()[0];
            linear.weight = weight.f_narrow(0, first, out)?;
            if let Some(bias) = &bias {
                linear.bias = Some(bias.f_narrow(0, first, out)?);
            }
            first += out;
        }
        Ok(Self { linears, weight, bias, frozen: RefCell::new(None) })
    }

    /// `x` `[…, in]` → `[…, out]` of each layer.
    pub(crate) fn forward(&self, x: &Tensor) -> Result<[Tensor; N]> {
        Ok(self.forward_joint(x)?.0)
    }

    /// `x` `[…, in]` → `[…, out]` of each layer, and `[…, Σ out]` of all if they are one product, which
    /// they are between [`LinearGroup::freeze_adapters`] and [`LinearGroup::thaw_adapters`].
    pub(crate) fn forward_joint(&self, x: &Tensor) -> Result<([Tensor; N], Option<Tensor>)> {
        let input = Factor::new(x)?;
        let mut joint = None;
        let outputs = match &*self.frozen.borrow() {
            Some(frozen) => self.split(&input, joint.insert(self.joint_output(&input, frozen)?))?,
            None => self.separate_outputs(&input, self.factors(x.f_kind()?)?)?,
        };
        let mut shaped = Vec::with_capacity(N);
        for output in outputs {
            shaped.push(input.shaped(&output)?);
        }
        let parts =
            shaped.try_into().unwrap_or_else(|_| unreachable!("every layer has pushed its output"));
        Ok((parts, joint.map(|joint| input.shaped(&joint)).transpose()?))
    }

    /// Multiplies with each weight by itself, so that a gradient reaches it.
    fn separate_outputs(
        &self,
        input: &Factor,
        factors: Option<AdapterFactors>,
    ) -> Result<Vec<Tensor>> {
        let mut outputs = Vec::with_capacity(N);
        for linear in &self.linears {
            outputs.push(input.product(&linear.weight, linear.bias.as_ref())?);
        }
        if let Some(factors) = factors {
            let low_rank = input.product(&factors.a, None)?;
            if let OutputFactors::Separate(b) = &factors.b {
                add_adapters(input, &mut outputs, &low_rank, b)?;
            }
        }
        Ok(outputs)
    }

    /// Multiplies with all weights in one product, without a graph.
    fn joint_output(&self, input: &Factor, frozen: &FrozenFactors) -> Result<Tensor> {
        let mut joint = input.product(&self.weight, self.bias.as_ref())?;
        if let FrozenFactors(Some(AdapterFactors { a, b })) = frozen {
            let low_rank = input.product(a, None)?;
            match b {
                OutputFactors::Separate(b) => {
                    add_adapters(input, &mut self.split(input, &joint)?, &low_rank, b)?;
                }
                OutputFactors::Diagonal(b) => input.add_product(&mut joint, &low_rank, b)?,
            }
        }
        Ok(joint)
    }

    /// Returns views of the output of each layer.
    fn split(&self, input: &Factor, joint: &Tensor) -> Result<Vec<Tensor>> {
        let mut outputs = Vec::with_capacity(N);
        let mut first = 0;
        for linear in &self.linears {
            let out = linear.weight.size()[0];
            outputs.push(input.part(joint, first, out)?);
            first += out;
        }
        Ok(outputs)
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
        if a.is_empty() {
            return Ok(None);
        }
        let a: Vec<&Tensor> = a.iter().collect();
        Ok(Some(AdapterFactors { a: joined(&a)?, b: OutputFactors::Separate(b) }))
    }

    /// Converts the adapters once, without a graph, for all passes until
    /// [`LinearGroup::thaw_adapters`]. Changes until then have no effect, and no pass has a gradient.
    pub(crate) fn freeze_adapters(&self) -> Result<()> {
        let mut factors = self.factors(self.weight.f_kind()?)?;
        if let Some(AdapterFactors { a, b }) = &mut factors
            && let OutputFactors::Separate(separate) = b
            && self.weight.device().is_cuda()
        {
            *b = OutputFactors::Diagonal(self.diagonal(a, separate)?);
        }
        self.frozen.replace(Some(FrozenFactors(factors)));
        Ok(())
    }

    /// Returns `[Σ out, Σ r]` with the B of each layer on the diagonal.
    fn diagonal(&self, a: &Tensor, b: &[Option<Tensor>]) -> Result<Tensor> {
        let shape = [self.weight.size()[0], a.size()[0]];
        let joint = Tensor::f_zeros(shape, (a.f_kind()?, a.device()))?;
        let mut first_out = 0;
        let mut first_r = 0;
        for (linear, factor) in self.linears.iter().zip(b) {
            let out = linear.weight.size()[0];
            if let Some(factor) = factor {
                let r = factor.size()[1];
                let mut block = joint.f_narrow(0, first_out, out)?.f_narrow(1, first_r, r)?;
                block.f_copy_(factor)?;
                first_r += r;
            }
            first_out += out;
        }
        Ok(joint)
    }

    /// Ends [`LinearGroup::freeze_adapters`].
    pub(crate) fn thaw_adapters(&self) {
        self.frozen.replace(None);
    }
}

/// Concatenates tensors by their first dimension; a single one is not copied.
fn joined(tensors: &[&Tensor]) -> Result<Tensor> {
    match tensors {
        [single] => Ok(single.shallow_clone()),
        _ => Ok(Tensor::f_cat(tensors, 0)?),
    }
}

/// Adds the part of each adapter to its layer's output.
fn add_adapters(
    input: &Factor,
    outputs: &mut [Tensor],
    low_rank: &Tensor,
    b: &[Option<Tensor>],
) -> Result<()> {
    let mut first = 0;
    for (output, factor) in outputs.iter_mut().zip(b) {
        if let Some(factor) = factor {
            let r = factor.size()[1];
            input.add_product(output, &input.part(low_rank, first, r)?, factor)?;
            first += r;
        }
    }
    Ok(())
}

/// Most rows for which a weight is the left factor of a product on the CPU.
const FEW_ROWS: i64 = 256;

/// The input of products with weights, as a matrix.
///
/// Few rows on the CPU are computed as (W xᵀ)ᵀ. A matrix product first copies its right factor into
/// the order in which it reads it. For few rows this takes as long as the product itself if that
/// factor is the weight.
struct Factor {
    /// `[rows, in]`, or `[in, rows]` for few rows on the CPU. Products have the same layout.
    matrix: Tensor,
    has_columns: bool,
    /// Size of the input.
    size: Vec<i64>,
}

impl Factor {
    fn new(x: &Tensor) -> Result<Self> {
        let size = x.size();
        let width = size.last().copied().unwrap_or(1);
        let rows = x.f_reshape([-1, width])?;
        let has_columns = x.device() == Device::Cpu && rows.size()[0] <= FEW_ROWS;
        let matrix = if has_columns { rows.f_transpose(0, 1)? } else { rows };
        Ok(Self { matrix, has_columns, size })
    }

    /// Returns the product with `weight` `[out, in]`, plus `bias` `[out]`.
    fn product(&self, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        Ok(match (self.has_columns, bias) {
            (false, bias) => self.matrix.f_linear(weight, bias)?,
            (true, None) => weight.f_mm(&self.matrix)?,
            (true, Some(bias)) => bias.f_unsqueeze(1)?.f_addmm(weight, &self.matrix)?,
        })
    }

    /// Adds to the product `y` the product of another one, `x`, with `weight` `[out, in]`.
    fn add_product(&self, y: &mut Tensor, x: &Tensor, weight: &Tensor) -> Result<()> {
        let _ = match self.has_columns {
            true => y.f_addmm_(weight, x)?,
            false => y.f_addmm_(x, &weight.f_transpose(0, 1)?)?,
        };
        Ok(())
    }

    /// Returns `width` outputs of a product, from number `first`.
    fn part(&self, product: &Tensor, first: i64, width: i64) -> Result<Tensor> {
        Ok(product.f_narrow(if self.has_columns { 0 } else { 1 }, first, width)?)
    }

    /// Returns a product with the input's dimensions.
    fn shaped(&self, product: &Tensor) -> Result<Tensor> {
        let rows =
            if self.has_columns { product.f_transpose(0, 1)? } else { product.shallow_clone() };
        let mut size = self.size.clone();
        if let Some(last) = size.last_mut() {
            *last = rows.size()[1];
        }
        Ok(rows.f_view(size.as_slice())?)
    }
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
        let linears = std::array::from_fn(|n| LinearLayer {
            name: n.to_string(),
            weight: matrix(&row["W"]),
            bias: (!row["bias"].is_null()).then(|| Tensor::from_slice(&numbers(&row["bias"]))),
            adapter: Some(Adapter::new(matrix(&row["A"]), matrix(&row["B"]), &lora)),
        });
        LinearGroup::new(linears).unwrap()
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

    fn noise(rows: i64, columns: i64) -> Tensor {
        (Tensor::arange(rows * columns, (Kind::Float, Device::Cpu)) * 0.7)
            .sin()
            .view([rows, columns])
    }

    #[test]
    fn product_is_independent_of_row_count() {
        let x = noise(FEW_ROWS + 10, 24);
        let (weight, bias) = (noise(7, 24), noise(1, 7).view(-1));
        for bias in [None, Some(&bias)] {
            let [many, few] = [&x, &x.narrow(0, 0, 9)].map(|x| {
                let input = Factor::new(x).unwrap();
                let mut y = input.product(&weight, bias).unwrap();
                let again = input.product(&weight, None).unwrap();
                input.add_product(&mut y, &again, &noise(7, 7)).unwrap();
                input.shaped(&input.part(&y, 2, 4).unwrap()).unwrap()
            });
            assert_eq!(few.size(), [9, 4]);
            assert!((many.narrow(0, 0, 9) - few).abs().max().double_value(&[]) < 1e-5);
        }
    }

    /// Returns layers of different widths of which the second one has no adapter.
    fn uneven_layers() -> LinearGroup<3> {
        let lora = LoraSettings { r: 2, alpha: 6.0 };
        LinearGroup::new([5, 3, 4].map(|out| LinearLayer {
            name: String::new(),
            weight: noise(out, 6),
            bias: Some(noise(1, out).view(-1)),
            adapter: (out != 3).then(|| Adapter::new(noise(2, 6), noise(out, 2), &lora)),
        }))
        .unwrap()
    }

    #[test]
    fn joint_product_equals_separate_products() {
        let _guard = tch::no_grad_guard();
        let layers = uneven_layers();
        for rows in [3, FEW_ROWS + 1] {
            let x = noise(rows, 6).view([1, rows, 6]);
            let separate = layers.forward(&x).unwrap();
            layers.freeze_adapters().unwrap();
            let joint = layers.forward(&x).unwrap();
            layers.thaw_adapters();
            for (joint, separate) in joint.iter().zip(&separate) {
                assert_eq!(joint.size(), separate.size());
                assert!((joint - separate).abs().max().double_value(&[]) < 1e-5);
            }
        }
    }

    /// On a GPU the adapters of a group are one product.
    #[test]
    fn diagonal_of_adapters_equals_separate_adapters() {
        let _guard = tch::no_grad_guard();
        let layers = uneven_layers();
        let factors = layers.factors(Kind::Float).unwrap().unwrap();
        let input = Factor::new(&noise(4, 6)).unwrap();
        let low_rank = input.product(&factors.a, None).unwrap();
        let mut joint = input.product(&layers.weight, layers.bias.as_ref()).unwrap();
        let OutputFactors::Separate(b) = &factors.b else { unreachable!() };
        let diagonal = layers.diagonal(&factors.a, b).unwrap();
        input.add_product(&mut joint, &low_rank, &diagonal).unwrap();
        let separate = layers.separate_outputs(&input, Some(factors)).unwrap();
        let difference = joint - Tensor::cat(&separate, 0); // columns
        assert!(difference.abs().max().double_value(&[]) < 1e-5);
    }

    #[test]
    fn weights_of_a_group_are_held_once() {
        let layers = uneven_layers();
        let _ = layers.linears[1].weight.shallow_clone().zero_();
        let part = layers.weight.narrow(0, 5, 3);
        assert_eq!(part.abs().max().double_value(&[]), 0.0);
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

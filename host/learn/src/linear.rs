//! Linear layers of the base model that read the same input, with their adapters.

use std::cell::RefCell;

use tch::{Kind, Tensor};

use crate::error::Result;
use crate::libtorch::linear;
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
                let input = Rows::new(x)?;
                let mut sum = Rows::new(&residual)?.matrix; // a view
                add_product(&mut sum, &input.matrix, &self.weight)?;
                if let Some(AdapterFactors { a, b: OutputFactors::Diagonal(b) }) = factors {
                    add_product(&mut sum, &input.product(a, None)?, b)?;
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
        let input = Rows::new(x)?;
        let mut joint = None;
        let outputs = match &*self.frozen.borrow() {
            Some(frozen) => self.split(joint.insert(self.joint_output(&input, frozen)?))?,
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
        input: &Rows,
        factors: Option<AdapterFactors>,
    ) -> Result<Vec<Tensor>> {
        let mut outputs = Vec::with_capacity(N);
        for linear in &self.linears {
            outputs.push(input.product(&linear.weight, linear.bias.as_ref())?);
        }
        if let Some(factors) = factors {
            let low_rank = input.product(&factors.a, None)?;
            if let OutputFactors::Separate(b) = &factors.b {
                add_adapters(&mut outputs, &low_rank, b)?;
            }
        }
        Ok(outputs)
    }

    /// Multiplies with all weights in one product, without a graph.
    fn joint_output(&self, input: &Rows, frozen: &FrozenFactors) -> Result<Tensor> {
        let mut joint = input.product(&self.weight, self.bias.as_ref())?;
        if let FrozenFactors(Some(AdapterFactors { a, b })) = frozen {
            let low_rank = input.product(a, None)?;
            match b {
                OutputFactors::Separate(b) => {
                    add_adapters(&mut self.split(&joint)?, &low_rank, b)?;
                }
                OutputFactors::Diagonal(b) => add_product(&mut joint, &low_rank, b)?,
            }
        }
        Ok(joint)
    }

    /// Returns views of the output of each layer.
    fn split(&self, joint: &Tensor) -> Result<Vec<Tensor>> {
        let mut outputs = Vec::with_capacity(N);
        let mut first = 0;
        for linear in &self.linears {
            let out = linear.weight.size()[0];
            outputs.push(joint.f_narrow(1, first, out)?);
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
fn add_adapters(outputs: &mut [Tensor], low_rank: &Tensor, b: &[Option<Tensor>]) -> Result<()> {
    let mut first = 0;
    for (output, factor) in outputs.iter_mut().zip(b) {
        if let Some(factor) = factor {
            let r = factor.size()[1];
            add_product(output, &low_rank.f_narrow(1, first, r)?, factor)?;
            first += r;
        }
    }
    Ok(())
}

/// Input of several products with weights.
struct Rows {
    /// Input as a matrix `[rows, in]`.
    matrix: Tensor,
    /// Dimensions of the input, `[…, in]`.
    size: Vec<i64>,
}

impl Rows {
    fn new(x: &Tensor) -> Result<Self> {
        let size = x.size();
        let width = size.last().copied().unwrap_or(1);
        Ok(Self { matrix: x.f_reshape([-1, width])?, size })
    }

    /// Returns the product `[rows, out]` with `weight` `[out, in]`, plus `bias` `[out]`.
    fn product(&self, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let contiguous = false;
        linear(&self.matrix, weight, bias, contiguous)
    }

    /// Returns a product with the input's dimensions.
    fn shaped(&self, product: &Tensor) -> Result<Tensor> {
        let mut size = self.size.clone();
        if let Some(last) = size.last_mut() {
            *last = product.size()[1];
        }
        Ok(product.f_view(size.as_slice())?)
    }
}

/// Adds to `y` `[rows, out]` the product of `x` `[rows, in]` with `weight` `[out, in]`.
fn add_product(y: &mut Tensor, x: &Tensor, weight: &Tensor) -> Result<()> {
    let _ = y.f_addmm_(x, &weight.f_transpose(0, 1)?)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lora::merged_weight;
    use crate::testing::golden::{check_all, close, numbers, same};
    use corver_core::LoraSettings;
    use serde_json::Value;
    use tch::Device;

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

    /// Numbers in no order, so that sums of products are small.
    fn scattered(rows: i64, columns: i64, step: f64) -> Tensor {
        (Tensor::arange(rows * columns, (Kind::Double, Device::Cpu)) * step)
            .sin()
            .view([rows, columns])
    }

    /// Rows above and below the bounds of `product.cpp`, sums of one part and of several, operands that
    /// are not contiguous; f64 has no kernel.
    #[test]
    fn products_of_few_rows_match_double_precision() {
        let _guard = tch::no_grad_guard();
        let sizes = [
            (1, 1, 1),
            (3, 191, 5),
            (1, 192, 1),
            (3, 207, 5),
            (8, 640, 9),
            (16, 300, 12),
            (17, 700, 30),
            (64, 1300, 7),
            (256, 225, 6),
            (257, 225, 6),
        ];
        for (kind, of_rounding) in
            [(Kind::Float, 0.0), (Kind::BFloat16, 1.0 / 256.0), (Kind::Double, 0.0)]
        {
            for (rows, input, out) in sizes {
                let x = scattered(input, rows, 51.7).transpose(0, 1).to_kind(kind);
                let weight = scattered(out, 2 * input, 87.3).to_kind(kind).narrow(1, 1, input);
                let bias = scattered(1, out, 13.1).to_kind(kind).view(-1);
                let exact =
                    x.to_kind(Kind::Double).matmul(&weight.to_kind(Kind::Double).transpose(0, 1));
                for bias in [None, Some(&bias)] {
                    let expected = bias.map_or(exact.shallow_clone(), |bias| &exact + bias);
                    for contiguous in [false, true] {
                        let y = linear(&x.unsqueeze(0), &weight, bias, contiguous).unwrap();
                        assert_eq!(y.size(), [1, rows, out]);
                        assert!(!contiguous || y.is_contiguous());
                        let error = (y.squeeze_dim(0).to_kind(Kind::Double) - &expected).abs();
                        // libtorch rounds the product, and its sum with the bias.
                        let rounded = exact.abs() + expected.abs();
                        let bound = rounded * of_rounding + 1e-7 * input as f64;
                        assert!(
                            bool::try_from(error.less_equal_tensor(&bound).all()).unwrap(),
                            "{kind:?}, {rows} x {input} x {out}: {}",
                            error.max()
                        );
                    }
                }
            }
        }
    }

    /// The tests of this file again, in a process without AVX-512, and in one without AVX2.
    #[test]
    fn products_match_on_other_processors() {
        for capability in ["avx2", "default"] {
            let tests = std::env::current_exe().unwrap();
            let output = std::process::Command::new(tests)
                .args(["linear::tests", "--skip", "other_processors"])
                .env("ATEN_CPU_CAPABILITY", capability)
                .output()
                .unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        }
    }

    #[test]
    fn products_with_a_graph_have_gradients() {
        let x = noise(3, 24).set_requires_grad(true);
        let y = linear(&x, &noise(7, 24), None, false).unwrap();
        y.sum(Kind::Float).backward();
        let expected = noise(7, 24).sum_dim_intlist(0, false, Kind::Float);
        assert!((x.grad() - expected).abs().max().double_value(&[]) < 1e-5);
    }

    #[test]
    fn products_of_other_sizes_are_errors() {
        let _guard = tch::no_grad_guard();
        assert!(linear(&noise(3, 24), &noise(7, 25), None, false).is_err());
        let bias = noise(1, 6).view(-1);
        assert!(linear(&noise(3, 24), &noise(7, 24), Some(&bias), false).is_err());
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
        for rows in [3, 257] {
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
        let input = Rows::new(&noise(4, 6)).unwrap();
        let low_rank = input.product(&factors.a, None).unwrap();
        let mut joint = input.product(&layers.weight, layers.bias.as_ref()).unwrap();
        let OutputFactors::Separate(b) = &factors.b else { unreachable!() };
        let diagonal = layers.diagonal(&factors.a, b).unwrap();
        add_product(&mut joint, &low_rank, &diagonal).unwrap();
        let separate = layers.separate_outputs(&input, Some(factors)).unwrap();
        let difference = joint - Tensor::cat(&separate, 1);
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

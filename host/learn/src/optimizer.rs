//! AdamW (Loshchilov & Hutter 2019) with a state that can be saved, and gradient clipping.
//!
//! libtorch's own optimiser does not expose its moments, and has none of 8 bits.

use corver_core::AdamWSettings;
use tch::Tensor;

use crate::error::{LearnError, Result};
use crate::moments::Moment;

/// The AdamW optimiser: parameters and their moments.
#[derive(Debug)]
pub struct AdamW {
    settings: AdamWSettings,
    parameters: Vec<Tensor>,
    first: Vec<Moment>,
    second: Vec<Moment>,
    step: usize,
}

impl AdamW {
    /// Creates an optimiser that updates `parameters` in place.
    ///
    /// # Errors
    /// Fails if the device has no room for the moments.
    pub fn new(parameters: Vec<Tensor>, settings: AdamWSettings) -> Result<Self> {
        let _guard = tch::no_grad_guard();
        let mut first = Vec::with_capacity(parameters.len());
        let mut second = Vec::with_capacity(parameters.len());
        for parameter in &parameters {
            first.push(Moment::new(parameter, settings.moments, true)?);
            second.push(Moment::new(parameter, settings.moments, false)?);
        }
        Ok(Self { first, second, settings, parameters, step: 0 })
    }

    /// Returns the tensors that are optimised.
    pub fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }

    /// Returns the number of finished steps.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.step
    }

    /// Returns first and second moments of all parameters, in f32.
    ///
    /// # Errors
    /// Fails if the device fails.
    pub fn moments(&self) -> Result<(Vec<Tensor>, Vec<Tensor>)> {
        let mut first = Vec::with_capacity(self.first.len());
        let mut second = Vec::with_capacity(self.second.len());
        for moment in &self.first {
            first.push(moment.read()?);
        }
        for moment in &self.second {
            second.push(moment.read()?);
        }
        Ok((first, second))
    }

    /// Returns the moments as they are stored, each with the index of its parameter and a name that
    /// is unique for that parameter.
    pub(crate) fn state(&self) -> impl Iterator<Item = (usize, String, &Tensor)> {
        [("m", &self.first), ("v", &self.second)].into_iter().flat_map(|(name, moments)| {
            moments.iter().enumerate().flat_map(move |(n, moment)| {
                moment
                    .tensors()
                    .into_iter()
                    .map(move |(part, tensor)| (n, format!("{name}{part}"), tensor))
            })
        })
    }

    /// Restores parameters, moments and the number of finished steps. `take` returns a moment by the
    /// index and the name of [`AdamW::state`].
    ///
    /// # Errors
    /// Fails if `take` fails or a shape does not fit. The optimiser is then unchanged.
    pub(crate) fn restore(
        &mut self,
        parameters: &[Tensor],
        mut take: impl FnMut(usize, &str) -> Result<Tensor>,
        steps: usize,
    ) -> Result<()> {
        self.check(parameters, "adapter")?;
        let mut first = Vec::with_capacity(self.first.len());
        let mut second = Vec::with_capacity(self.second.len());
        for (n, moment) in self.first.iter().enumerate() {
            first.push(moment.restored(|part| take(n, &format!("m{part}")))?);
        }
        for (n, moment) in self.second.iter().enumerate() {
            second.push(moment.restored(|part| take(n, &format!("v{part}")))?);
        }
        let _guard = tch::no_grad_guard();
        for (parameter, saved) in self.parameters.iter_mut().zip(parameters) {
            parameter.f_copy_(saved)?;
        }
        self.first = first;
        self.second = second;
        self.step = steps;
        Ok(())
    }

    /// Takes one step along `gradients`, which have the shapes of the parameters.
    ///
    /// # Errors
    /// Fails if the gradients do not fit the parameters.
    pub fn step(&mut self, gradients: &[Tensor], learning_rate: f64) -> Result<()> {
        self.check(gradients, "gradients")?;
        let AdamWSettings { beta1, beta2, eps, weight_decay, moments: _ } = self.settings;
        self.step += 1;
        let exponent = self.step as f64;
        let scale1 = 1.0 - beta1.powf(exponent);
        let scale2 = 1.0 - beta2.powf(exponent);
        let _guard = tch::no_grad_guard();
        let moments = self.first.iter_mut().zip(&mut self.second);
        for ((parameter, gradient), (first, second)) in
            self.parameters.iter_mut().zip(gradients).zip(moments)
        {
            let mut m = first.read()?;
            let mut v = second.read()?;
            let _ = m.f_lerp_(gradient, 1.0 - beta1)?;
            let _ = v
                .f_mul_scalar_(beta2)?
                .f_add_(&gradient.f_square()?.f_mul_scalar_(1.0 - beta2)?)?;
            let root = v.f_sqrt()?.f_mul_scalar_(1.0 / scale2.sqrt())?.f_add_scalar_(eps)?;
            if weight_decay != 0.0 {
                let _ = parameter.f_mul_scalar_(1.0 - learning_rate * weight_decay)?;
            }
            let _ = parameter.f_sub_(&m.f_div(&root)?.f_mul_scalar_(learning_rate / scale1)?)?;
            first.write(&m)?;
            second.write(&v)?;
        }
        Ok(())
    }

    fn check(&self, tensors: &[Tensor], what: &'static str) -> Result<()> {
        let is_defined = tensors.iter().all(Tensor::defined);
        if !is_defined
            || !tensors.iter().map(Tensor::size).eq(self.parameters.iter().map(Tensor::size))
        {
            return Err(LearnError::Input {
                what,
                expected: format!("the {} parameters' shapes", self.parameters.len()),
                got: format!("{} tensors of other shapes", tensors.len()),
            });
        }
        Ok(())
    }
}

/// Scales the gradients in place so that their joint L2 norm is at most `max_norm`, as PyTorch does:
/// by min(1, `max_norm` / (norm + 1e-6)). Returns the norm before.
///
/// # Errors
/// Fails if the device fails.
pub fn clip_gradients(gradients: &mut [Tensor], max_norm: f64) -> Result<f64> {
    let norm = global_norm(gradients)?;
    let scale = (max_norm / (norm + 1e-6)).min(1.0);
    if scale < 1.0 {
        for gradient in gradients {
            let _ = gradient.f_mul_scalar_(scale)?;
        }
    }
    Ok(norm)
}

/// Returns the joint L2 norm of all elements, with one transfer from the device.
pub(crate) fn global_norm(tensors: &[Tensor]) -> Result<f64> {
    if tensors.is_empty() {
        return Ok(0.0);
    }
    let norms = tensors.iter().map(Tensor::f_norm).collect::<std::result::Result<Vec<_>, _>>()?;
    Ok(Tensor::f_stack(&norms, 0)?.f_norm()?.f_double_value(&[])?)
}

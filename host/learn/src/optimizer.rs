//! AdamW (Loshchilov & Hutter 2019) with a state that can be saved, and gradient clipping.
//!
//! Written out because libtorch's own optimiser does not hand out its moments. The moments are held in the parameters'
//! precision (f32 for adapters). An 8-bit state, which the paper's runs used to fit one GPU, is not offered: adapters
//! are small, and the full state is the better reference.

use corver_core::update::AdamWSettings;
use tch::Tensor;

use crate::error::{LearnError, Result};

/// Parameters with their moments.
#[derive(Debug)]
pub struct AdamW {
    settings: AdamWSettings,
    parameters: Vec<Tensor>,
    first: Vec<Tensor>,
    second: Vec<Tensor>,
    step: usize,
}

impl AdamW {
    /// Shares the storage of `parameters` and updates it in place.
    ///
    /// # Errors
    /// Where the device has no room for the moments.
    pub fn new(parameters: Vec<Tensor>, settings: AdamWSettings) -> Result<Self> {
        let zeros = || parameters.iter().map(|p| Ok(p.f_zeros_like()?.f_detach()?)).collect::<Result<Vec<_>>>();
        Ok(Self { first: zeros()?, second: zeros()?, settings, parameters, step: 0 })
    }

    /// What is optimised.
    pub fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }

    /// Steps done.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.step
    }

    /// First moments, second moments, and steps done: all there is to save.
    pub fn state(&self) -> (&[Tensor], &[Tensor], usize) {
        (&self.first, &self.second, self.step)
    }

    /// Takes over saved parameters, moments and the number of steps done.
    ///
    /// # Errors
    /// Where the shapes are not those of the parameters; everything is then as before.
    pub fn restore(&mut self, parameters: &[Tensor], first: &[Tensor], second: &[Tensor], steps: usize) -> Result<()> {
        for saved in [parameters, first, second] {
            self.check(saved, "optimiser state")?;
        }
        let _guard = tch::no_grad_guard();
        let own = self.parameters.iter_mut().chain(&mut self.first).chain(&mut self.second);
        for (own, saved) in own.zip(parameters.iter().chain(first).chain(second)) {
            own.f_copy_(saved)?;
        }
        self.step = steps;
        Ok(())
    }

    /// One step along `gradients`, one per parameter and of its shape.
    ///
    /// # Errors
    /// Where the gradients do not fit the parameters.
    pub fn step(&mut self, gradients: &[Tensor], learning_rate: f64) -> Result<()> {
        self.check(gradients, "gradients")?;
        let AdamWSettings { beta1, beta2, eps, weight_decay } = self.settings;
        self.step += 1;
        let exponent = self.step as f64;
        let (scale1, scale2) = (1.0 - beta1.powf(exponent), 1.0 - beta2.powf(exponent));
        let _guard = tch::no_grad_guard();
        let moments = self.first.iter_mut().zip(&mut self.second);
        for ((parameter, gradient), (m, v)) in self.parameters.iter_mut().zip(gradients).zip(moments) {
            let _ = m.f_lerp_(gradient, 1.0 - beta1)?;
            let _ = v.f_mul_scalar_(beta2)?.f_add_(&gradient.f_square()?.f_mul_scalar_(1.0 - beta2)?)?;
            let root = v.f_sqrt()?.f_mul_scalar_(1.0 / scale2.sqrt())?.f_add_scalar_(eps)?;
            if weight_decay != 0.0 {
                let _ = parameter.f_mul_scalar_(1.0 - learning_rate * weight_decay)?;
            }
            let _ = parameter.f_sub_(&m.f_div(&root)?.f_mul_scalar_(learning_rate / scale1)?)?;
        }
        Ok(())
    }

    fn check(&self, tensors: &[Tensor], what: &'static str) -> Result<()> {
        let sizes = |tensors: &[Tensor]| tensors.iter().map(Tensor::size).collect::<Vec<_>>();
        if tensors.iter().any(|t| !t.defined()) || sizes(tensors) != sizes(&self.parameters) {
            return Err(LearnError::Input {
                what,
                expected: format!("the {} parameters' shapes", self.parameters.len()),
                got: format!("{} tensors of other shapes", tensors.len()),
            });
        }
        Ok(())
    }
}

/// Scales all gradients in place so that their joint L2 norm is at most `max_norm`, as PyTorch does
/// (min(1, `max_norm` / (norm + 1e-6))); returns the norm before.
///
/// # Errors
/// Where the device fails.
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

/// Joint L2 norm of all elements; one transfer from the device.
pub(crate) fn global_norm(tensors: &[Tensor]) -> Result<f64> {
    if tensors.is_empty() {
        return Ok(0.0);
    }
    let norms = tensors.iter().map(Tensor::f_norm).collect::<std::result::Result<Vec<_>, _>>()?;
    Ok(Tensor::f_stack(&norms, 0)?.f_norm()?.f_double_value(&[])?)
}

//! AdamW (Loshchilov & Hutter 2019) with a state that can be saved, and gradient clipping.
//!
//! Written out because libtorch's own optimiser does not hand out its moments, and has none of 8
//! bits.

use corver_core::AdamWSettings;
use tch::Tensor;

use crate::error::{LearnError, Result};
use crate::moments::Moment;

/// Parameters with their moments.
#[derive(Debug)]
pub struct AdamW {
    settings: AdamWSettings,
    parameters: Vec<Tensor>,
    first: Vec<Moment>,
    second: Vec<Moment>,
    step: usize,
}

impl AdamW {
    /// Shares the storage of `parameters` and updates it in place.
    ///
    /// # Errors
    /// Where the device has no room for the moments.
    pub fn new(parameters: Vec<Tensor>, settings: AdamWSettings) -> Result<Self> {
        let _guard = tch::no_grad_guard();
        let moments =
            |signed| parameters.iter().map(|p| Moment::new(p, settings.moments, signed)).collect();
        let (first, second): (Result<_>, Result<_>) = (moments(true), moments(false));
        Ok(Self { first: first?, second: second?, settings, parameters, step: 0 })
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

    /// First and second moments, in f32.
    ///
    /// # Errors
    /// Where the device fails.
    pub fn moments(&self) -> Result<(Vec<Tensor>, Vec<Tensor>)> {
        let read =
            |moments: &[Moment]| moments.iter().map(Moment::read).collect::<Result<Vec<_>>>();
        Ok((read(&self.first)?, read(&self.second)?))
    }

    /// The moments as they are held, each with its parameter's number and a name of its own for
    /// that parameter.
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

    /// Takes over saved parameters, moments (`take` finds what [`AdamW::state`] named) and the
    /// number of steps done.
    ///
    /// # Errors
    /// Those of `take`, or shapes that are not those of the parameters; everything is then as
    /// before.
    pub(crate) fn restore(
        &mut self,
        parameters: &[Tensor],
        mut take: impl FnMut(usize, &str) -> Result<Tensor>,
        steps: usize,
    ) -> Result<()> {
        self.check(parameters, "adapter")?;
        let mut restored = |moments: &[Moment], name: &str| {
            let moments = moments.iter().enumerate();
            moments
                .map(|(n, own)| own.restored(|part| take(n, &format!("{name}{part}"))))
                .collect::<Result<Vec<_>>>()
        };
        let (first, second) = (restored(&self.first, "m")?, restored(&self.second, "v")?);
        let _guard = tch::no_grad_guard();
        for (own, saved) in self.parameters.iter_mut().zip(parameters) {
            own.f_copy_(saved)?;
        }
        (self.first, self.second, self.step) = (first, second, steps);
        Ok(())
    }

    /// One step along `gradients`, one per parameter and of its shape.
    ///
    /// # Errors
    /// Where the gradients do not fit the parameters.
    pub fn step(&mut self, gradients: &[Tensor], learning_rate: f64) -> Result<()> {
        self.check(gradients, "gradients")?;
        let AdamWSettings { beta1, beta2, eps, weight_decay, moments: _ } = self.settings;
        self.step += 1;
        let exponent = self.step as f64;
        let (scale1, scale2) = (1.0 - beta1.powf(exponent), 1.0 - beta2.powf(exponent));
        let _guard = tch::no_grad_guard();
        let moments = self.first.iter_mut().zip(&mut self.second);
        for ((parameter, gradient), (first, second)) in
            self.parameters.iter_mut().zip(gradients).zip(moments)
        {
            let (mut m, mut v) = (first.read()?, second.read()?);
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
        let sizes = |list: &[Tensor]| list.iter().map(Tensor::size).collect::<Vec<_>>();
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

//! A model's base weights as plain numbers, for code that does not depend on libtorch.

use tch::{Device, Kind, Tensor};

use crate::error::Result;
use crate::model::Model;

/// A weight that was copied to the host.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightValues {
    /// Shape as in PyTorch: a linear layer is `[out, in]`.
    pub shape: Vec<usize>,
    /// Numbers in row-major order; as many as the product of `shape`.
    pub values: Vec<f32>,
}

impl Model {
    /// Returns the base weight with this Hugging Face name; `None` if the model has no such weight.
    ///
    /// # Errors
    /// Fails if the device fails.
    pub fn weight_values(&self, name: &str) -> Result<Option<WeightValues>> {
        let Some((_, tensor)) = self.parameters().into_iter().find(|(known, _)| known == name)
        else {
            return Ok(None);
        };
        let flat =
            tensor.f_detach()?.f_to_device(Device::Cpu)?.f_to_kind(Kind::Float)?.f_reshape([-1])?;
        let shape = tensor.size().into_iter().map(|n| n as usize).collect();
        Ok(Some(WeightValues { shape, values: Vec::try_from(flat)? }))
    }

    /// Multiplies the base weights whose Hugging Face names `selects` accepts, so that training starts
    /// from another scale than that of [`Model::random`].
    ///
    /// # Errors
    /// Fails if the device fails.
    pub fn scale_weights(&mut self, factor: f64, selects: impl Fn(&str) -> bool) -> Result<()> {
        let _guard = tch::no_grad_guard();
        for (_, tensor) in self.parameters().into_iter().filter(|(name, _)| selects(name)) {
            // In place: the clone is another handle of the model's own weight.
            let _: Tensor = tensor.shallow_clone().f_mul_scalar_(factor)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::tiny;

    #[test]
    fn weight_values_are_row_major() {
        let model = tiny("qwen2", 1);
        let name = "model.layers.1.mlp.down_proj.weight";
        let weight = model.weight_values(name).unwrap().unwrap();
        assert_eq!(weight.shape, [16, 24]);
        let parameters = model.parameters();
        let tensor = parameters.iter().find(|(known, _)| known == name).unwrap().1;
        for (row, column) in [(0, 0), (0, 23), (1, 0), (15, 7)] {
            let value = weight.values[row * 24 + column];
            assert_eq!(f64::from(value), tensor.double_value(&[row as i64, column as i64]));
        }
        assert_eq!(model.weight_values("lm_head.weight").unwrap(), None, "it is the embedding");
    }

    #[test]
    fn only_selected_weights_are_scaled() {
        let plain = tiny("qwen2", 1);
        let mut scaled = tiny("qwen2", 1);
        scaled.scale_weights(2.0, |name| name.contains("q_proj")).unwrap();
        for (name, _) in plain.parameters() {
            let [before, after] =
                [&plain, &scaled].map(|model| model.weight_values(&name).unwrap().unwrap().values);
            let factor = if name.contains("q_proj") { 2.0 } else { 1.0 };
            assert!(
                before.iter().zip(after).all(|(before, after)| before * factor == after),
                "{name}"
            );
        }
    }
}

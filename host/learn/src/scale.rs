//! Scaling of a model's base weights.

use tch::Tensor;

use crate::error::Result;
use crate::model::Model;

impl Model {
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
    fn only_selected_weights_are_scaled() {
        let plain = tiny("qwen2", 1);
        let mut scaled = tiny("qwen2", 1);
        scaled.scale_weights(2.0, |name| name.contains("q_proj")).unwrap();
        for ((name, before), (_, after)) in plain.parameters().iter().zip(scaled.parameters()) {
            let factor = if name.contains("q_proj") { 2.0 } else { 1.0 };
            assert!((*before * factor).equal(after), "{name}");
        }
    }
}

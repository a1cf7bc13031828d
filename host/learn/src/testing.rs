//! Small random models and tokenizers for this crate's tests.

#[path = "../../../tests/golden.rs"]
pub(crate) mod golden;

use corver_core::LoraSettings;
use tch::{Device, Tensor};

use crate::model::Model;
use crate::random::RandomStream;
use corver_pretrained::{ModelConfig, ModelFamily};

pub(crate) fn tiny_config(family: &str) -> ModelConfig {
    ModelConfig {
        family: match family {
            "llama" => ModelFamily::Llama,
            "qwen2" => ModelFamily::Qwen2,
            "qwen3" => ModelFamily::Qwen3,
            "olmo2" => ModelFamily::Olmo2,
            other => panic!("{other}"),
        },
        vocab_size: 23,
        hidden_size: 16,
        intermediate_size: 24,
        num_layers: 2,
        num_heads: 4,
        num_kv_heads: 2,
        head_dim: 4,
        max_positions: 64,
        norm_eps: 1e-6,
        rope_theta: 10_000.0,
        rope_scaling: None,
        tie_embeddings: family != "llama",
    }
}

pub(crate) fn tiny(family: &str, seed: u64) -> Model {
    Model::random(tiny_config(family), seed, Device::Cpu).unwrap()
}

/// Returns the tiny model of seed 1 with adapters that change its output: B is random too.
pub(crate) fn with_random_adapter(family: &str, lora: &LoraSettings) -> Model {
    let mut model = tiny(family, 1);
    model.add_lora(lora, 2).unwrap();
    let _guard = tch::no_grad_guard();
    for (name, tensor) in model.lora_parameters() {
        if name.contains("lora_B") {
            let mut stream = RandomStream::new(9, &name, &[]);
            let draws: Vec<f32> = (0..tensor.numel()).map(|_| 0.3 * stream.normal()).collect();
            tensor.shallow_clone().copy_(&Tensor::from_slice(&draws).view_as(tensor));
        }
    }
    model
}

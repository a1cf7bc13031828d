//! Small random models for this crate's tests.

use tch::Device;

use crate::config::{Family, ModelConfig};
use crate::model::Model;

pub(crate) fn tiny_config(family: &str) -> ModelConfig {
    ModelConfig {
        family: match family {
            "llama" => Family::Llama,
            "qwen2" => Family::Qwen2,
            "qwen3" => Family::Qwen3,
            "olmo2" => Family::Olmo2,
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

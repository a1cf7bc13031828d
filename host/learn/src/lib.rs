//! libtorch: models, LoRA, sampling, the GRPO update.

mod attention;
mod cache;
mod chat;
pub mod config;
pub mod device;
pub mod error;
mod files;
mod linear;
pub mod lora;
pub mod model;
pub mod optimizer;
mod random;
mod rope;
pub mod sample;
pub mod schedule;
pub mod sft;
mod spans;
#[cfg(test)]
mod testing;
pub mod tokenizer;
mod weights;

pub use config::{Family, Llama3Scaling, ModelConfig};
pub use device::{Precision, parse_device, set_num_threads};
pub use error::{LearnError, Result};
pub use lora::LoraSettings;
pub use model::Model;
pub use optimizer::{AdamW, AdamWSettings, clip_gradients};
pub use sample::{Completion, sample};
pub use schedule::CosineSchedule;
pub use sft::{Example, FitSettings, fit};
pub use tokenizer::{Decoded, PolicyTokenizer};

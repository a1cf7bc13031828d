//! libtorch: models, LoRA, sampling, the GRPO update.

mod attention;
mod cache;
mod chat;
pub mod checkpoint;
pub mod config;
pub mod device;
pub mod error;
mod files;
mod linear;
pub mod lora;
pub mod loss;
pub mod model;
pub mod optimizer;
pub mod policy;
mod random;
mod rope;
pub mod sample;
pub mod schedule;
mod scores;
pub mod sft;
mod spans;
#[cfg(test)]
mod testing;
pub mod tokenizer;
mod update;
mod weights;

pub use checkpoint::latest_checkpoint;
pub use config::{Family, Llama3Scaling, ModelConfig};
pub use device::{Precision, parse_device, set_num_threads};
pub use error::{LearnError, Result};
pub use lora::LoraSettings;
pub use loss::{ImportanceLevel, LossSettings, LossType};
pub use model::Model;
pub use optimizer::{AdamW, AdamWSettings, clip_gradients};
pub use policy::{LearnSettings, OldLogProbs, Policy};
pub use sample::{Completion, sample};
pub use schedule::CosineSchedule;
pub use sft::{Example, FitSettings, fit};
pub use tokenizer::{Decoded, PolicyTokenizer};

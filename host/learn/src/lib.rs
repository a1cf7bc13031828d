//! Models on libtorch: LoRA, sampling and updates.
//!
//! [`Policy`] combines the parts: it samples rollouts ([`corver_core::Sampler`]) and learns from them
//! ([`corver_core::Learner`]). The modules, in the order of a training step:
//!
//! ```text
//! plan, memory                memory of a run: estimate and measurement
//! model, layer, attention     ids ─▶ hidden states;    rope, weights, files: Hugging Face folders
//! linear, lora                projections of one input, with their adapters
//! libtorch                    fused functions in C++, and what tch does not expose of libtorch
//! sample, draw,
//! cache, prompts              prompts ─▶ completions, each prompt run once for all its samples
//! update, micro_batch,
//! packed, scores              rollouts ─▶ micro-batches ─▶ gradient
//! objective, loss, dpo,
//! critic, update_report       advantages or pairs ─▶ loss and report
//! optimizer, moments,
//! schedule                    gradient ─▶ adapters
//! checkpoint                  adapters and optimiser state ─▶ folder, and back
//! imitation                   demonstrations ─▶ gradient
//! merge                       model + adapter ─▶ a model for serving
//! fit                         examples ─▶ a model, such as those of the demo
//! ```
//!
//! A seed names every random draw; libtorch's own generator is used only by [`Model::noise`]. Every
//! operation of libtorch goes through its fallible form, so that a failing device (out of memory,
//! say) is an error and not a panic.
//!
//! Limitation: loading weights needs a copy in memory.

mod attention;
mod cache;
pub mod critic;
pub mod device;
pub mod dpo;
mod draw;
pub mod error;
mod files;
pub mod fit;
mod layer;
mod libtorch;
mod linear;
pub mod lora;
pub mod loss;
pub mod memory;
mod merge;
mod micro_batch;
pub mod model;
mod moments;
mod objective;
pub mod optimizer;
mod packed;
pub mod plan;
pub mod policy;
mod prompts;
mod random;
mod rope;
pub mod sample;
mod scale;
pub mod schedule;
mod scores;
#[cfg(test)]
mod testing;
mod update;
mod update_report;
mod weights;

pub use corver_core::{
    AdamWSettings, ImportanceLevel, LearnSettings, LoraSettings, LossSettings, LossType,
    MomentPrecision, OldLogProbs, Precision,
};
pub use device::{device_name, find_device, measure_threads, set_num_threads};
pub use error::{LearnError, Result};
pub use fit::{Example, FitSettings, fit};
pub use merge::merge;
pub use model::Model;
pub use optimizer::{AdamW, clip_gradients};
pub use plan::{Answers, MemoryPlan, Workload};
pub use policy::{Policy, checkpoints};
pub use sample::{SampleHooks, SampledCompletion, Watch, sample, sample_with};
pub use schedule::CosineSchedule;

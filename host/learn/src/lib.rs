//! libtorch: models, LoRA, sampling, the update.
//!
//! [`Policy`] is the whole of it: it draws rollouts ([`corver_core::Sampler`]) and improves on them
//! ([`corver_core::Learner`]). Underneath, in the order of a training step:
//!
//! ```text
//! plan, memory                what a run takes of the device, before and after
//! model, layer, attention     ids ─▶ hidden states;    rope, weights, files: Hugging Face folders
//! linear, lora                projections of one input, with their adapters
//! libtorch                    what libtorch has and tch does not pass on
//! sample, cache, prompts      prompts ─▶ completions, each prompt run once for all its samples
//! update, packed, scores,
//! loss, dpo, critic           rollouts + advantages ─▶ gradient, in micro-batches
//! optimizer, moments,
//! schedule                    gradient ─▶ adapters
//! checkpoint                  adapters and optimiser state ─▶ folder, and back
//! imitation                   demonstrations ─▶ gradient
//! merge                       model + adapter ─▶ a model for serving
//! sft                         examples ─▶ a model (how the demo's models are made)
//! values                      a model ─▶ plain numbers
//! ```
//!
//! All randomness is named by a seed; libtorch's own generator is never used. Every operation of
//! libtorch goes through its fallible form, so that a device that fails (out of memory, say) is an
//! error and not a panic.
//!
//! Not here yet: loading weights without a copy in memory.

mod attention;
mod cache;
pub mod checkpoint;
pub mod critic;
pub mod device;
pub mod dpo;
pub mod error;
mod files;
pub mod imitation;
mod layer;
mod libtorch;
mod linear;
pub mod lora;
pub mod loss;
pub mod memory;
mod merge;
pub mod model;
mod moments;
pub mod optimizer;
mod packed;
pub mod plan;
pub mod policy;
mod prompts;
mod random;
mod rope;
pub mod sample;
pub mod schedule;
mod scores;
pub mod sft;
#[cfg(test)]
mod testing;
mod update;
mod values;
mod weights;

pub use checkpoint::checkpoints;
pub use corver_core::{
    AdamWSettings, ImportanceLevel, LearnSettings, LoraSettings, LossSettings, LossType,
    MomentPrecision, OldLogProbs, Precision,
};
pub use device::{find_device, measure_threads, set_num_threads};
pub use error::{LearnError, Result};
pub use merge::merge;
pub use model::Model;
pub use optimizer::{AdamW, clip_gradients};
pub use plan::{Load, MemoryPlan};
pub use policy::Policy;
pub use sample::{Completion, Surroundings, Watch, sample, sample_within};
pub use schedule::CosineSchedule;
pub use sft::{Example, FitSettings, fit};
pub use values::WeightValues;

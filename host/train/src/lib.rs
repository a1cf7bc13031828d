//! Training runs: reinforcement learning (`train`) and the supervised fine-tuning before it (`sft`).

pub mod cost;
pub mod metrics;
pub mod sft;
pub mod train;
pub mod warnings;

pub use cost::QueryCounts;
pub use train::{Observer, RewardNames, RunSummary, SystemPrompts, TrainError, TrainPlan, train};

//! A training run, and the folder that it leaves.

pub mod cost;
pub mod data_order;
mod events;
pub mod fingerprint;
pub mod folder;
pub mod metrics;
pub mod train;
pub mod warnings;

pub use cost::{Asked, Prices};
pub use fingerprint::{fingerprint, text_fingerprint};
pub use folder::{RunDir, RunDirError, RunManifest};
pub use train::{Observer, Plan, RewardNames, Summary, SystemPrompts, TrainError, train};

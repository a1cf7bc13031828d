//! The tiny policy: what it believes, what it says, and how it is trained.

pub mod belief;
#[cfg(feature = "torch")]
pub mod train;

pub use belief::{Belief, Beliefs, Profile};
#[cfg(feature = "torch")]
pub use train::{PolicyQuality, PolicySettings, train_policy};

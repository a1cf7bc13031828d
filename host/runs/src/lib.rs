//! A run's folder: what decided the run, what came out of it, and the draws that its seed gives.

pub mod data_order;
mod events;
mod fingerprint;
pub mod folder;

pub use fingerprint::{fingerprint, text_fingerprint};
pub use folder::{RunDir, RunDirError, RunManifest};

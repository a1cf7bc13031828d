//! A run's folder, its fingerprints, and the questions and seeds of its steps.

pub mod data_order;
mod events;
mod fingerprint;
pub mod folder;

pub use fingerprint::{fingerprint, json_fingerprint, text_fingerprint};
pub use folder::{RunDir, RunDirError, RunManifest};

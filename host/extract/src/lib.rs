//! Sentences → triplets: a decoder-only language model with a KV cache, run by ONNX Runtime.
//!
//! The model comes as a [`Bundle`], a folder that also brings its tokenizer, its prompt and its limits; nothing about a
//! particular extractor is known here. [`Extractor`] puts sentences into the prompt, decodes greedily and reads the
//! replies with [`corver_core::triplet::triplets_from_reply`].
//!
//! What makes it fast: the prompt before the sentence is run once and its keys and values serve every batch; equal
//! sentences are extracted once and remembered; batches hold sentences of similar length; rows that have ended leave
//! their batch.
//!
//! [`onnx`] writes a decoder in the form that a bundle's `model.onnx` has.

mod bundle;
mod decoder;
mod device;
mod error;
mod extractor;
mod layout;
mod memo;
pub mod onnx;
mod runtime;
mod tensor;

pub use bundle::Bundle;
pub use bundle::Settings;
pub use device::Device;
pub use error::ExtractError;
pub use extractor::Extractor;
pub use runtime::RuntimeLibrary;

/// Shorthand of this crate.
pub type Result<T> = std::result::Result<T, ExtractError>;

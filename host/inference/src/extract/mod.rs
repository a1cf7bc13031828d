//! Sentences → triplets: a decoder-only language model with a KV cache, run by ONNX Runtime.
//!
//! The model is a Hugging Face folder, whose graph is written here (`graph`), or a graph that
//! Optimum exported; nothing about a particular extractor is known. [`Extractor`] puts sentences
//! behind a prompt, decodes greedily, and reads the replies with
//! [`corver_core::triplet::triplets_from_reply`].
//!
//! ```text
//! folder, settings, prompt    what is asked, and how
//! worker, memo                which sentences are decoded, and when
//! decoder                     rows of tokens, in a graph
//! graph                       writes that graph
//! ```
//!
//! What makes it fast: the prompt's keys and values exist once, however many rows continue it; rows
//! whose replies have ended make place for others; a reply ends where its list closes; equal
//! sentences are decoded once and remembered.

mod decoder;
mod error;
mod extractor;
mod folder;
mod graph;
mod memo;
mod prompt;
mod settings;
mod worker;

pub use crate::onnx::{Device, RuntimeLibrary};
pub use error::ExtractError;
pub use extractor::{Extractor, Stream};
pub use folder::Options;
pub use settings::Settings;
pub use worker::Stats;

/// Shorthand of this crate.
pub type Result<T> = std::result::Result<T, ExtractError>;

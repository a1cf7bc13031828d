//! Sentences → triplets: a decoder-only language model with a KV cache, run by ONNX Runtime.
//!
//! The model is a Hugging Face folder, for which this crate writes the graph (`graph`), or a graph
//! that Optimum exported. [`OnnxExtractor`] appends each sentence to a prompt, decodes greedily,
//! and reads the replies with [`corver_core::reply`].
//!
//! ```text
//! folder, settings, prompt    the model's folder and its input
//! scheduler, memo             the sentences that are decoded together
//! decoder                     rows of tokens in a graph
//! graph                       writes that graph
//! ```
//!
//! Four things make it fast. The prompt's keys and values are stored once for all rows. A row whose
//! reply has ended makes room for the next sentence. A reply ends where its list closes. Equal
//! sentences are decoded once, and replies are remembered.

mod decoder;
mod error;
mod extractor;
mod folder;
mod graph;
mod memo;
mod prompt;
mod scheduler;
mod settings;

pub use crate::onnx::{Device, RuntimeLibrary};
pub use error::ExtractError;
pub use extractor::{OnnxExtractor, ReplyStream};
pub use folder::{ExtractOptions, split_prompt};
pub use scheduler::Stats;
pub use settings::ExtractorSettings;

/// A result with an [`ExtractError`].
pub type Result<T> = std::result::Result<T, ExtractError>;

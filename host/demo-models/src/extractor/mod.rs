//! The demo's extractor: a tiny decoder that copies the stated facts of a sentence.
//!
//! Part of its training sentences are of the demo's world, without the held-out ones. The others have
//! names that occur once, so that the model learns to copy. The prompt has the task and the sentence.
//! The reply has the form of the published extractor's: `[["head", "relation", "tail"], …]` or `[]`.

mod examples;
mod folder;
mod measure;
mod tokenizer;
mod train;

pub use measure::measure;
pub use train::{SHIPPED, train};

//! The demo's triplet model: a tiny decoder that copies what a sentence states.
//!
//! Part of its training sentences are of the demo's world, without those that are kept for
//! measuring; the others are about names that it meets once, so that what it learns is to find and
//! to copy. The prompt names the task and gives the sentence; the reply has the form of the
//! published extractor's, `[["head", "relation", "tail"], …]` or `[]`.

mod folder;
mod lessons;
mod measure;
mod tokenizer;
mod train;

pub use measure::measure;
pub use train::{SHIPPED, make};

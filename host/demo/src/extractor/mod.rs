//! The demo's triplet model: a tiny decoder that copies what a sentence states.
//!
//! Half of its training sentences are of the demo's world, without those that are kept for measuring; the other half are
//! about names that it meets once, so that what it learns is to find and to copy. The prompt names the task and gives the
//! sentence; the reply has the form of the published extractor's, `[["head", "relation", "tail"], …]` or `[]`.

#[cfg(feature = "torch")]
mod graph;
pub mod measure;
#[cfg(feature = "torch")]
pub mod onnx;
#[cfg(feature = "torch")]
mod proto;
#[cfg(feature = "torch")]
mod tokenizer;
#[cfg(feature = "torch")]
pub mod train;

pub use measure::{ExtractorQuality, measure_extractor};
#[cfg(feature = "torch")]
pub use train::{ExtractorSettings, train_extractor};

//! The demo's triplet model: a tiny decoder that copies what a sentence states.
//!
//! It reads names piece by piece and has never seen the demo's own: it is trained on worlds of other seeds, so that what
//! it has learned is to find and to copy. The prompt is `sentence:`, the sentence, `triplets:`; the reply is in the form
//! that the published extractor uses, `[["head", "relation", "tail"], …]` or `[]`.

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

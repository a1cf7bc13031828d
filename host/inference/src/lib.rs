//! Models that ONNX Runtime computes. No other crate links the library.
//!
//! ```text
//! onnx       the library, its devices and sessions; a builder of graphs
//! extract    sentences ─▶ (head, relation, tail) triplets
//! nli        (premise, hypothesis) ─▶ entailment
//! ```

pub mod extract;
pub mod nli;
pub mod onnx;

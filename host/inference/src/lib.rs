//! Models that ONNX Runtime computes, which no other crate links.
//!
//! ```text
//! onnx       the library, its devices and sessions; a graph written node by node
//! extract    sentences ─▶ (head, relation, tail) triplets
//! nli        (premise, hypothesis) ─▶ entailment
//! ```

pub mod extract;
pub mod nli;
pub mod onnx;

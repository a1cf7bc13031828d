//! Writes the graphs that this crate runs. They use ONNX Runtime's own operators where it has a faster one.

mod decoder;
mod graph;
mod place;
mod proto;

pub(crate) use decoder::decoder;
pub(crate) use graph::{Float, Outside};
pub(crate) use place::place;

//! Writes the graphs of the extractor.

mod cache;
mod decoder;

pub(crate) use cache::row_mover;
pub(crate) use decoder::decoder;

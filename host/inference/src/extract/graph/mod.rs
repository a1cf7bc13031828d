//! Writes the graphs of the extractor.

mod cache;
mod decoder;

pub(crate) use cache::{prompt_sharer, row_mover, row_selector, zeros};
pub(crate) use decoder::decoder;

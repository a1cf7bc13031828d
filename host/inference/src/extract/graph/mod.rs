//! Writes the graphs that this crate runs.

mod decoder;
mod place;

pub(crate) use decoder::decoder;
pub(crate) use place::place;

//! Rows of tokens that a graph decodes together. `continued` runs the graph that this crate writes,
//! `exported` one of Optimum's.

mod continued;
mod exported;
mod layout;

use crate::onnx::RunError;

pub(crate) use continued::Continued;
pub(crate) use exported::Exported;

use crate::extract::{ExtractError, Result};

/// A set of rows that are decoded greedily, in the order of their admission.
pub(crate) trait Decoder: Send {
    /// Appends rows, given by their tokens after the prompt. Returns the most probable next token
    /// of each.
    fn admit(&mut self, sentences: &[&[u32]]) -> Result<Vec<u32>>;

    /// Appends a token to every row, and returns the most probable next one of each.
    fn step(&mut self, tokens: &[u32]) -> Result<Vec<u32>>;

    /// Removes all rows but those with the given indices, which ascend.
    fn retain(&mut self, rows: &[usize]) -> Result<()>;

    /// True if rows may be admitted while others are being decoded.
    fn admits_while_active(&self) -> bool;
}

fn as_input(ids: &[u32]) -> impl Iterator<Item = i64> + '_ {
    ids.iter().map(|&id| i64::from(id))
}

fn run_error(rows: usize, columns: usize, source: RunError) -> ExtractError {
    ExtractError::Run { rows, columns, source }
}

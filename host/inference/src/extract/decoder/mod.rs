//! Rows of tokens that one graph decodes together. `continued` runs the graph that this crate
//! writes, `exported` one of Optimum's.

mod continued;
mod exported;
mod layout;

use crate::onnx::RunError;

pub(crate) use continued::Continued;
pub(crate) use exported::Exported;

use crate::extract::{ExtractError, Result};

/// Rows that are decoded greedily, in the order in which they came.
pub(crate) trait Decoder: Send {
    /// Adds rows behind those that are there: their tokens after the prompt. Returns the most
    /// likely next token of each.
    fn enter(&mut self, sentences: &[&[u32]]) -> Result<Vec<u32>>;

    /// Adds a token to every row, and returns the most likely next one of each.
    fn step(&mut self, tokens: &[u32]) -> Result<Vec<u32>>;

    /// Keeps the rows of these numbers, ascending; the others are gone.
    fn keep(&mut self, rows: &[usize]) -> Result<()>;

    /// Whether rows may enter while others are there.
    fn takes_more(&self) -> bool;
}

fn as_input(ids: &[u32]) -> impl Iterator<Item = i64> + '_ {
    ids.iter().map(|&id| i64::from(id))
}

fn run_error(rows: usize, columns: usize, source: RunError) -> ExtractError {
    ExtractError::Run { rows, columns, source }
}

//! Rows of tokens that a graph decodes together. `continued` runs the graph that this crate writes,
//! `exported` one of Optimum's.

mod cache;
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
    if crate::onnx::is_out_of_memory(&source) {
        ExtractError::OutOfMemory { rows, columns, source }
    } else {
        ExtractError::Run { rows, columns, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_short_memory_advises_smaller_batch() {
        let cases = [
            ("Failed to allocate memory for requested buffer of size 4096", true),
            ("CUDA failure 2: out of memory", true),
            ("CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED", true),
            (
                "This is an invalid model. Type Error: tensor(bfloat16) of Identity is invalid",
                false,
            ),
        ];
        for (reason, is_memory) in cases {
            let error = run_error(32, 7, RunError::new(reason));
            assert_eq!(matches!(error, ExtractError::OutOfMemory { .. }), is_memory, "{reason}");
            assert_eq!(error.to_string().contains("extract.batch_size"), is_memory, "{error}");
        }
    }
}

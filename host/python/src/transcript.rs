//! Prompts, responses and golds of other trainers, parsed as `corver-host serve` parses them.

use corver_data::golds::golds;
use corver_pretrained::transcript;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Golds of a dataset's row, whose value is given as JSON.
#[pyfunction]
pub fn parse_golds(json: &str) -> PyResult<Vec<String>> {
    let value =
        serde_json::from_str(json).map_err(|error| PyValueError::new_err(error.to_string()))?;
    golds(&value).map_err(PyValueError::new_err)
}

/// Response of the model in a text that begins with its prompt, without special tokens.
#[pyfunction]
pub fn extract_response(query: &str, prompt: &str) -> PyResult<String> {
    transcript::response(query, Some(prompt)).ok_or_else(|| {
        PyValueError::new_err(
            "the query neither begins with its prompt nor has a header of the assistant's turn",
        )
    })
}

/// Last turn of the user in a prompt; all of a prompt without turns.
#[pyfunction]
pub fn last_user_turn(prompt: &str) -> String {
    transcript::question(prompt)
}

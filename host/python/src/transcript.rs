//! Prompts, responses and golds of other trainers, parsed as `corver-host serve` parses them.

use corver_data::golds;
use corver_pretrained::transcript;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::Value;

/// Golds of a dataset's row, whose value is given as JSON.
#[pyfunction]
pub fn parse_golds(json: &str) -> PyResult<Vec<String>> {
    golds::golds(&parse(json)?).map_err(PyValueError::new_err)
}

/// Question in a label, whose value is given as JSON; `None` if it has none.
#[pyfunction]
pub fn question_in(json: &str) -> PyResult<Option<String>> {
    Ok(golds::question_in(&parse(json)?).map(str::to_owned))
}

fn parse(json: &str) -> PyResult<Value> {
    serde_json::from_str(json).map_err(|error| PyValueError::new_err(error.to_string()))
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

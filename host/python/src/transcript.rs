//! What trainers hand over, read as `corver-host serve` reads it.

use corver_data::golds::golds as read_golds;
use corver_pretrained::transcript;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The gold answers of a dataset's row, whose value is given as JSON.
#[pyfunction]
pub fn golds(json: &str) -> PyResult<Vec<String>> {
    let value =
        serde_json::from_str(json).map_err(|error| PyValueError::new_err(error.to_string()))?;
    read_golds(&value).map_err(PyValueError::new_err)
}

/// What the model answered, of a text that begins with its prompt; special tokens left out.
#[pyfunction]
pub fn response(whole: &str, prompt: &str) -> PyResult<String> {
    transcript::response(whole, Some(prompt)).ok_or_else(|| {
        PyValueError::new_err(
            "the query neither begins with its prompt nor has a header of the assistant's turn",
        )
    })
}

/// What was asked: a prompt's last turn of a user, or all of a prompt without turns.
#[pyfunction]
pub fn question(prompt: &str) -> String {
    transcript::question(prompt)
}

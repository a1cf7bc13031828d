//! The host's messages as exceptions.

use corver_core::error_chain;
use pyo3::PyErr;
use pyo3::create_exception;
use pyo3::exceptions::PyException;

create_exception!(
    corver,
    CorverError,
    PyException,
    "What went wrong and what to do about it, in one line. Arguments that contradict each other raise ValueError instead."
);
create_exception!(
    corver,
    SettingsError,
    CorverError,
    "A setting that is unknown, of the wrong kind or out of bounds. Nothing has been opened yet."
);

/// For `map_err` on settings.
pub fn settings(error: anyhow::Error) -> PyErr {
    SettingsError::new_err(error_chain(error.as_ref()))
}

/// For `map_err` on everything else.
pub fn corver(error: anyhow::Error) -> PyErr {
    CorverError::new_err(error_chain(error.as_ref()))
}

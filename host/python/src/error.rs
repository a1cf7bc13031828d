//! The host's messages as exceptions.

use corver_core::error_chain;
use pyo3::PyErr;
use pyo3::create_exception;
use pyo3::exceptions::PyException;

create_exception!(
    corver,
    CorverError,
    PyException,
    "A problem and its remedy, in one line. Arguments that contradict each other raise ValueError \
     instead."
);
create_exception!(
    corver,
    SettingsError,
    CorverError,
    "A setting that is unknown, of the wrong kind or out of bounds, or that names a missing file. \
     Raised before anything is opened."
);

/// Converts an error of the settings.
pub fn settings(error: anyhow::Error) -> PyErr {
    SettingsError::new_err(error_chain(error.as_ref()))
}

/// Converts any other error.
pub fn corver(error: anyhow::Error) -> PyErr {
    CorverError::new_err(error_chain(error.as_ref()))
}

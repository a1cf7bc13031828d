//! The host's messages as exceptions.

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
    SettingsError::new_err(explain(&error))
}

/// For `map_err` on everything else.
pub fn corver(error: anyhow::Error) -> PyErr {
    CorverError::new_err(explain(&error))
}

/// What was being done, then why it failed, outermost first, on one line. Many messages quote their cause already.
fn explain(error: &anyhow::Error) -> String {
    let mut whole = String::new();
    for cause in error.chain().map(|cause| cause.to_string().replace('\n', " ")) {
        if !whole.contains(&cause) {
            whole = if whole.is_empty() { cause } else { format!("{whole}: {cause}") };
        }
    }
    whole
}

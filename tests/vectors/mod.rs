//! Reads the vectors in this folder, which `reference.py` writes. Shared by the tests of several
//! crates (`#[path]`).

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The cases of one file.
///
/// # Panics
/// Where the file does not have that form, or has no case.
pub fn cases<T: DeserializeOwned>(json: &str) -> Vec<T> {
    #[derive(Deserialize)]
    struct File<T> {
        cases: Vec<T>,
    }
    let File { cases } = serde_json::from_str(json).expect("a file that reference.py wrote");
    assert!(!cases.is_empty());
    cases
}

/// Whether every number is the expected one, up to `tolerance`, absolute or relative.
#[allow(dead_code, reason = "not every test crate that includes this file compares numbers")]
pub fn close(got: &[f64], expected: &[f64], tolerance: f64) -> bool {
    let near = |(got, expected): (&f64, &f64)| {
        (got - expected).abs() <= tolerance * expected.abs().max(1.0)
    };
    got.len() == expected.len() && got.iter().zip(expected).all(near)
}

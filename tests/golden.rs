//! Reads golden vectors. They lie outside this repository: `CORVER_SHARED` names the folder that
//! holds `golden/`. Shared by the conformance tests of several crates (`#[path]`).
#![allow(dead_code, reason = "each test crate that includes this file uses its own part of it")]

use std::path::PathBuf;

use serde_json::Value;

/// Returns the path of a file beside the golden vectors.
///
/// # Panics
/// If `CORVER_SHARED` is not set. Tests that need it are ignored: `make conformance` runs them.
pub fn shared(path: &str) -> PathBuf {
    let folder = std::env::var_os("CORVER_SHARED").expect("CORVER_SHARED names the golden vectors");
    PathBuf::from(folder).join(path)
}

/// Returns the lines of `golden/reward/NAME.jsonl`.
///
/// # Panics
/// If the file is missing, empty or broken.
pub fn reward_vectors(name: &str) -> Vec<Value> {
    let path = shared(&format!("golden/reward/{name}.jsonl"));
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let rows: Vec<Value> = text
        .split('\n')
        .filter(|line| !line.is_empty())
        .map(|line| {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        })
        .collect();
    assert!(!rows.is_empty(), "{} holds no vector", path.display());
    rows
}

/// Checks every row and reports all that differ, not only the first.
///
/// # Panics
/// Where a row differs.
pub fn check_all(name: &str, check: impl Fn(&Value) -> Result<(), String>) {
    let rows = reward_vectors(name);
    let failures: Vec<String> = rows
        .iter()
        .filter_map(|row| {
            check(row)
                .err()
                .map(|problem| format!("{}: {problem}", row["id"].as_str().unwrap_or("?")))
        })
        .collect();
    assert!(
        failures.is_empty(),
        "{name}: {} of {} rows differ\n{}",
        failures.len(),
        rows.len(),
        failures.iter().take(10).cloned().collect::<Vec<_>>().join("\n")
    );
    eprintln!("{name}: {} rows agree", rows.len());
}

/// `Ok` where the two are equal.
pub fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: T, expected: T) -> Result<(), String> {
    if got == expected {
        Ok(())
    } else {
        Err(format!("{what}: got {got:?}, expected {expected:?}"))
    }
}

/// `Ok` where the two are within `absolute` or `relative` of each other.
pub fn close(
    what: &str,
    got: f64,
    expected: f64,
    absolute: f64,
    relative: f64,
) -> Result<(), String> {
    let allowed = absolute.max(relative * expected.abs());
    if (got - expected).abs() <= allowed {
        Ok(())
    } else {
        Err(format!("{what}: got {got}, expected {expected}"))
    }
}

/// A list of numbers.
pub fn numbers(value: &Value) -> Vec<f64> {
    value
        .as_array()
        .expect("a list")
        .iter()
        .map(|number| number.as_f64().expect("a number"))
        .collect()
}

/// A list of strings.
pub fn strings(value: &Value) -> Vec<String> {
    value
        .as_array()
        .expect("a list")
        .iter()
        .map(|text| text.as_str().expect("a string").to_owned())
        .collect()
}

/// A sentence index per token; −1 stands for none.
pub fn token_map(value: &Value) -> Vec<Option<usize>> {
    value
        .as_array()
        .expect("a list")
        .iter()
        .map(|index| usize::try_from(index.as_i64().expect("a number")).ok())
        .collect()
}

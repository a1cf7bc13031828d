//! Helpers that tests share: the folder of golden vectors, and a reader of JSON lines.
#![allow(dead_code)] // every test file uses a part of it

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

/// Returns the folder with the golden files. Tests that need it are ignored: `make conformance`
/// runs them.
pub fn shared() -> PathBuf {
    std::env::var_os("CORVER_SHARED").expect("CORVER_SHARED names the golden files").into()
}

/// Every line of a JSONL file. A missing file is a failure: the variable promised it.
pub fn lines<T: DeserializeOwned>(path: &Path) -> Vec<T> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let parse = |line| {
        serde_json::from_str(line).unwrap_or_else(|e| panic!("{}: {e}\n{line}", path.display()))
    };
    text.lines().map(parse).collect()
}

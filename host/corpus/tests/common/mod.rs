//! What the tests share: the folder of golden vectors, and a reader of JSON lines.
#![allow(dead_code)] // every test file uses a part of it

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

/// The folder that `CORVER_SHARED` names; `None`, with a line that says so, where the variable is
/// not set.
pub fn shared() -> Option<PathBuf> {
    let folder = std::env::var_os("CORVER_SHARED").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("skipped: CORVER_SHARED is not set");
    }
    folder
}

/// Every line of a JSONL file. A missing file is a failure: the variable promised it.
pub fn lines<T: DeserializeOwned>(path: &Path) -> Vec<T> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let parse = |line| {
        serde_json::from_str(line).unwrap_or_else(|e| panic!("{}: {e}\n{line}", path.display()))
    };
    text.lines().map(parse).collect()
}

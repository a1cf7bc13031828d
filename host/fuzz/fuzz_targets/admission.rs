//! Loads the input as a plugin: it is refused with an error, or is a rule.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use corver_rules::{Compiler, Kind, Limits, Sandbox};
use libfuzzer_sys::fuzz_target;

static FOLDER: LazyLock<tempfile::TempDir> =
    LazyLock::new(|| tempfile::tempdir().expect("there is a folder for temporary files"));
static SANDBOX: LazyLock<Sandbox> = LazyLock::new(|| {
    let limits = Limits { call_ms: 100, memory_bytes: 16 << 20, ..Limits::default() };
    Sandbox::new(limits, Compiler::Here).expect("the limits are possible")
});

fuzz_target!(|wasm: &[u8]| {
    let path: PathBuf = FOLDER.path().join("rule.wasm");
    std::fs::write(&path, wasm).expect("the folder is writable");
    let kind = Kind::of(&path, &Limits::default());
    let loaded = SANDBOX.load(&path, None, &serde_json::Value::Null);
    assert!(kind.is_ok() || loaded.is_err(), "a rule of no kind");
});

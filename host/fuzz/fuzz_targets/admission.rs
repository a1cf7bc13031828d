//! Loads the input as a plugin: it is rejected with an error, or it is a rule.
//!
//! The contract's metadata in a module is not changed, because wit-parser 0.254 overflows its stack
//! on packages that depend on each other. In the product this only ends the child process that
//! compiles (`tests/cli/attack.rs`).
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use corver_rules::{Compiler, Limits, PluginFile, PluginKind, Sandbox};
use libfuzzer_sys::{Corpus, fuzz_target};

static FOLDER: LazyLock<tempfile::TempDir> =
    LazyLock::new(|| tempfile::tempdir().expect("there is a folder for temporary files"));
static SANDBOX: LazyLock<Sandbox> = LazyLock::new(|| {
    let limits = Limits { call_ms: 100, memory_bytes: 16 << 20, ..Limits::default() };
    Sandbox::new(limits, Compiler::InProcess).expect("the limits are possible")
});

/// The seed's last section is its contract.
const MODULE: &[u8] = include_bytes!("../seeds/admission/module");
const NAME: &[u8] = b"component-type";

fn contract(wasm: &[u8]) -> Option<&[u8]> {
    Some(&wasm[wasm.windows(NAME.len()).position(|window| window == NAME)?..])
}

fuzz_target!(|wasm: &[u8]| -> Corpus {
    if contract(wasm).is_some_and(|found| Some(found) != contract(MODULE)) {
        return Corpus::Reject;
    }
    let path: PathBuf = FOLDER.path().join("rule.wasm");
    std::fs::write(&path, wasm).expect("the folder is writable");
    let kind = PluginKind::read(&path, &Limits::default());
    let loaded = SANDBOX.load(&PluginFile::unpinned(&path), None, &serde_json::Value::Null);
    assert!(kind.is_ok() || loaded.is_err(), "a rule of no kind");
    Corpus::Keep
});

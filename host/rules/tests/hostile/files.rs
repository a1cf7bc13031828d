//! Files that are no rules, or none for this host.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use corver_rules::{Compiler, Limits, PluginFile, RuleError, Sandbox};
use serde_json::Value;

use crate::guest::Guest;
use crate::{assert_still_runs, error_of, judge, load, load_in};

fn refusal(bytes: &[u8]) -> RuleError {
    error_of(bytes, &Limits::default())
}

fn load_path(path: &Path) -> RuleError {
    let sandbox = Sandbox::new(Limits::default(), Compiler::InProcess).unwrap();
    let error = sandbox.load(&PluginFile::unpinned(path), None, &Value::Null).unwrap_err();
    assert_still_runs(&sandbox);
    error
}

const DAMAGED: &str = "is damaged or no valid WebAssembly: ";
const NOT_WASM: &str = "is not a WebAssembly file; give the .wasm";
const FOREIGN_EXPORTS: &str = "exports neither corver:reward/sentence-scoring nor";

fn is_invalid(error: &RuleError, words: &str) -> bool {
    matches!(error, RuleError::InvalidPlugin(message) if message.contains(words))
}

fn is_too_large(error: &RuleError, words: &str) -> bool {
    matches!(error, RuleError::LimitExceeded(message) if message.contains(words))
}

/// Seeds of the fuzz target `admission`, which starts from files of the current contract.
/// `CORVER_WRITE=1` writes them again.
#[test]
fn fuzz_seeds_have_current_contract() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds/admission");
    let guest = Guest::default();
    for (name, wasm) in [
        ("component", guest.component()),
        ("module", guest.module()),
        ("plain-module", guest.plain_module()),
    ] {
        let seed = folder.join(name);
        if std::env::var_os("CORVER_WRITE").is_some() {
            std::fs::write(&seed, &wasm).unwrap();
        }
        assert!(std::fs::read(&seed).unwrap() == wasm, "{name} has another contract");
    }
}

#[test]
fn foreign_imports_are_rejected_by_name() {
    let extra = r#"(import "wasi_snapshot_preview1" "fd_write" (func (param i32 i32 i32 i32) (result i32)))"#;
    // Imports come first in a module.
    let wat = wat::parse_str(format!(
        r#"(module {extra} (func (export "corver:reward/sentence-scoring@0.1.0#score")))"#
    ));
    let mut module = wat.unwrap();
    module.extend(b"\0\x0f\x0ecomponent-type"); // an empty section of that name
    let error = refusal(&module);
    assert!(
        is_invalid(
            &error,
            "imports `wasi_snapshot_preview1#fd_write`; a rule may import nothing but"
        ),
        "{error}"
    );
    assert!(error.to_string().contains("--target wasm32-unknown-unknown"), "{error}");

    let component = |import: &str| {
        wat::parse_str(format!(
            r#"(component (import "{import}" (instance)) (instance $e) (export "corver:reward/sentence-scoring@0.1.0" (instance $e)))"#
        ))
        .unwrap()
    };
    for foreign in [
        "wasi:io/poll@0.2.9",
        "corver:reward/secrets@0.1.0",
        "corver:reward/diagnostics@9.0.0",
        "env",
        "corver:other/types@0.1.0",
    ] {
        let error = refusal(&component(foreign));
        assert!(
            is_invalid(&error, &format!("imports `{foreign}`; a rule may import nothing but")),
            "{error}"
        );
    }
    let hollow = refusal(&component("corver:reward/types@0.1.0"));
    assert!(is_invalid(&hollow, DAMAGED), "{hollow}");
}

#[test]
fn non_rule_files_are_rejected() {
    let plain = refusal(&Guest::default().plain_module());
    assert!(
        is_invalid(&plain, "it does not carry the contract")
            && plain.to_string().contains("corver_sdk::export!")
    );
    assert!(is_invalid(&refusal(b"\0asm\x0d\0\x01\0"), FOREIGN_EXPORTS));
    assert!(is_invalid(&refusal(b"#!/bin/sh\n"), NOT_WASM));
    assert!(is_invalid(&refusal(b""), NOT_WASM));
    assert!(is_invalid(&refusal(b"\0asm"), DAMAGED));
    assert!(matches!(load_path(Path::new("/no/such/rule.wasm")), RuleError::Io { .. }));
    assert!(is_invalid(&load_path(&std::env::temp_dir()), "is no regular file"));
}

#[test]
fn other_contract_version_is_rejected_with_advice() {
    for version in ["0.0.9", "0.1.1", "0.2.0", "1.0.0"] {
        let guest = Guest { version, ..Guest::default() };
        for bytes in [guest.module(), guest.component()] {
            let error = refusal(&bytes);
            assert!(matches!(error, RuleError::InvalidPlugin(_)), "{error}");
            let message = error.to_string();
            assert!(
                message.contains(&format!(
                    "implements corver:reward@{version}; this host requires 0.1.0"
                )),
                "{message}"
            );
            assert!(
                message.contains("Build the plugin again with the corver-sdk of this host"),
                "{message}"
            );
        }
    }
}

#[test]
fn random_bytes_are_refused() {
    let mut state = 7_u64;
    let mut random = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    for header in [&b"\0asm\x01\0\0\0"[..], b"\0asm\x0d\0\x01\0", b""] {
        for length in [1, 10, 1_000, 100_000] {
            let bytes: Vec<u8> =
                header.iter().copied().chain((0..length).map(|_| random())).collect();
            let error = load(&bytes, Limits::default()).unwrap_err();
            assert!(is_invalid(&error, NOT_WASM) || is_invalid(&error, DAMAGED), "{error}");
        }
    }
}

#[test]
fn oversized_files_are_rejected_before_reading() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.wasm");
    let mut file = File::create(&path).unwrap();
    file.write_all(&Guest::default().component()).unwrap();
    file.set_len(200 << 20).unwrap();
    let error = load_path(&path);
    assert!(is_too_large(&error, "has 209715200 bytes; at most 67108864 are allowed"), "{error}");

    let limits = Limits { file_bytes: 10, ..Limits::default() };
    let error = load(&Guest::default().module(), limits).unwrap_err();
    assert!(is_too_large(&error, "at most 10 are allowed (limits.file_bytes)"), "{error}");
}

#[cfg(unix)]
#[test]
fn pipes_and_devices_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe.wasm");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    for path in [Path::new("/dev/zero"), &pipe] {
        let error = load_path(path);
        assert!(is_invalid(&error, "is no regular file"), "{error}");
    }
}

#[test]
fn too_many_memories_are_refused() {
    let guest = Guest { extra: "(memory 1) (memory 1)", ..Guest::default() };
    let error = refusal(&guest.component());
    assert!(is_invalid(&error, DAMAGED), "{error:?}");
}

#[test]
fn truncated_or_flipped_rule_files_never_crash() {
    let sandbox =
        Sandbox::new(Limits { call_ms: 50, ..Limits::default() }, Compiler::InProcess).unwrap();
    for whole in [Guest::default().module(), Guest::default().component()] {
        for length in (4..whole.len()).step_by(7) {
            let error = match load_in(&sandbox, &whole[..length]) {
                Err(error) => error,
                // Cut between its last sections, which only name things, it is whole.
                Ok(rule) => {
                    assert_eq!(judge(&rule).unwrap().reward, Some(0.0), "the first {length} bytes");
                    continue;
                }
            };
            let named = [DAMAGED, "it does not carry the contract", FOREIGN_EXPORTS];
            assert!(named.iter().any(|words| is_invalid(&error, words)), "{error}");
        }
        // Any error or none: a flipped bit may be harmless. What must not happen is a crash.
        for at in (8..whole.len()).step_by(5) {
            let mut flipped = whole.clone();
            flipped[at] ^= 0x24;
            let _ = load_in(&sandbox, &flipped).map(|rule| judge(&rule));
        }
    }
}

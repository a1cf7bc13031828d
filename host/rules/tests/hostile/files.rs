//! Files that are no rules, or none for this host.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use corver_rules::{Compiler, Limits, RuleError, Sandbox};
use serde_json::Value;

use crate::guest::Guest;
use crate::{assert_goes_on, error_of, judge, load, load_in};

fn refusal(bytes: &[u8]) -> RuleError {
    error_of(bytes, &Limits::default())
}

fn load_path(path: &Path) -> RuleError {
    let sandbox = Sandbox::new(Limits::default(), Compiler::Here).unwrap();
    let error = sandbox.load(path, None, &Value::Null).unwrap_err();
    assert_goes_on(&sandbox);
    error
}

#[test]
fn foreign_imports_are_named() {
    let extra = r#"(import "wasi_snapshot_preview1" "fd_write" (func (param i32 i32 i32 i32) (result i32)))"#;
    // Imports come first in a module.
    let wat = wat::parse_str(format!(
        r#"(module {extra} (func (export "corver:reward/sentence-scoring@0.1.0#score")))"#
    ));
    let mut module = wat.unwrap();
    module.extend(b"\0\x0f\x0ecomponent-type"); // an empty section of that name
    let error = refusal(&module);
    assert!(
        matches!(&error, RuleError::ForeignImport { import, .. } if import == "wasi_snapshot_preview1#fd_write")
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
            matches!(&error, RuleError::ForeignImport { import, .. } if import == foreign),
            "{error}"
        );
    }
    let hollow = refusal(&component("corver:reward/types@0.1.0"));
    assert!(matches!(hollow, RuleError::Invalid { .. }), "{hollow}");
}

#[test]
fn what_is_no_rule_is_refused() {
    let plain = refusal(&Guest::default().plain_module());
    assert!(
        matches!(plain, RuleError::ForeignModule { .. })
            && plain.to_string().contains("corver_sdk::export!")
    );
    assert!(matches!(refusal(b"\0asm\x0d\0\x01\0"), RuleError::ForeignExports { .. }));
    assert!(matches!(refusal(b"#!/bin/sh\n"), RuleError::NotWasm { .. }));
    assert!(matches!(refusal(b""), RuleError::NotWasm { .. }));
    assert!(matches!(refusal(b"\0asm"), RuleError::Invalid { .. }));
    assert!(matches!(load_path(Path::new("/no/such/rule.wasm")), RuleError::Read { .. }));
    assert!(matches!(load_path(&std::env::temp_dir()), RuleError::NotAFile { .. }));
}

/// A rule is built against one version of the contract; the host speaks one.
#[test]
fn another_version_is_refused_with_advice() {
    for version in ["0.0.9", "0.2.0", "1.0.0"] {
        let guest = Guest { version, ..Guest::default() };
        for bytes in [guest.module(), guest.component()] {
            let error = refusal(&bytes);
            assert!(
                matches!(&error, RuleError::Version { found, spoken: "0.1.0", .. } if found == version),
                "{error}"
            );
            let message = error.to_string();
            assert!(
                message
                    .contains(&format!("speaks corver:reward@{version}; this host speaks 0.1.0")),
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
            assert!(
                matches!(error, RuleError::NotWasm { .. } | RuleError::Invalid { .. }),
                "{error}"
            );
        }
    }
}

#[test]
fn files_are_bounded_before_they_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.wasm");
    let mut file = File::create(&path).unwrap();
    file.write_all(&Guest::default().component()).unwrap();
    file.set_len(200 << 20).unwrap();
    let error = load_path(&path);
    assert!(
        matches!(error, RuleError::FileSize { limit: 0x400_0000, got: 0xc80_0000, .. }),
        "{error}"
    );

    let limits = Limits { file_bytes: 10, ..Limits::default() };
    let error = load(&Guest::default().module(), limits).unwrap_err();
    assert!(matches!(error, RuleError::FileSize { limit: 10, .. }), "{error}");
}

#[cfg(unix)]
#[test]
fn what_may_have_no_end_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe.wasm");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    for path in [Path::new("/dev/zero"), &pipe] {
        let error = load_path(path);
        assert!(matches!(error, RuleError::NotAFile { .. }), "{error}");
    }
}

#[test]
fn too_many_memories_are_refused() {
    let guest = Guest { extra: "(memory 1) (memory 1)", ..Guest::default() };
    let error = refusal(&guest.component());
    assert!(matches!(error, RuleError::Invalid { .. }), "{error:?}");
}

#[test]
fn damaged_files_are_refused_wherever_they_break_off() {
    let sandbox =
        Sandbox::new(Limits { call_ms: 50, ..Limits::default() }, Compiler::Here).unwrap();
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
            let typed = matches!(
                error,
                RuleError::Invalid { .. }
                    | RuleError::ForeignModule { .. }
                    | RuleError::ForeignExports { .. }
            );
            assert!(typed, "{error}");
        }
        // Any error or none: a flipped bit may be harmless. What must not happen is a crash.
        for at in (8..whole.len()).step_by(5) {
            let mut flipped = whole.clone();
            flipped[at] ^= 0x24;
            let _ = load_in(&sandbox, &flipped).map(|rule| judge(&rule));
        }
    }
}

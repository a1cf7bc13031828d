//! The plan of the house: a heavy library is named by one crate alone, light crates reach nothing
//! heavy, and the files of a crate import each other in one direction.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

mod circles;

/// Library → the crates that name it.
const OWNERS: [(&str, &[&str]); 13] = [
    ("clap", &["corver-demo-models", "corver-host"]),
    ("hyper", &["corver-serve"]),
    ("maud", &["corver-report"]),
    ("memmap2", &["corver-corpus"]),
    ("ort", &["corver-inference"]),
    ("parquet", &["corver-corpus"]),
    ("plotters", &["corver-report"]),
    ("prometheus-client", &["corver-serve"]),
    ("pyo3", &["corver-python"]),
    ("tantivy", &["corver-backends"]),
    ("tch", &["corver-learn"]),
    ("ureq", &["corver-http"]),
    ("wasmtime", &["corver-rules"]),
];

/// Stands for every crate of the workspace.
const ANY_OF_OURS: &str = "corver-";

/// Crate, what it never reaches, directly or through other crates, and why.
const NEVER: [(&str, &[&str], &str); 9] = [
    ("corver-settings", &[ANY_OF_OURS], "declarations know nothing of what they configure"),
    (
        "corver-sdk",
        &[ANY_OF_OURS],
        "guests and host share no crate: the WIT files are the contract",
    ),
    ("corver-files", &[ANY_OF_OURS], "it replaces files of any kind"),
    ("corver-http", &[ANY_OF_OURS], "it knows nothing of what is requested"),
    ("corver-corpus", &["corver-core", "corver-settings"], "the corpus engine is usable alone"),
    (
        "corver-core",
        &[
            "hyper",
            "memmap2",
            "ort",
            "parquet",
            "rand",
            "tantivy",
            "tch",
            "tokenizers",
            "ureq",
            "wasmtime",
        ],
        "the method runs in a unit test in milliseconds",
    ),
    ("corver-engine", &["tch"], "a server samples without libtorch"),
    (
        "corver-train",
        &["ort", "tantivy", "tch", "ureq", "wasmtime"],
        "a run is tested without the machinery",
    ),
    (
        "corver-reward",
        &["tch", "corver-engine", "corver-eval", "corver-runs", "corver-train"],
        "other trainers use the reward, and the Python package compiles it",
    ),
];

/// Crate → the crates that its manifest names, without tests and build scripts.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline", "--manifest-path"])
        .arg(workspace().join("Cargo.toml"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut graph = BTreeMap::new();
    for package in metadata["packages"].as_array().unwrap() {
        let mut names = BTreeSet::new();
        for dependency in package["dependencies"].as_array().unwrap() {
            if dependency["kind"].is_null() {
                names.insert(dependency["name"].as_str().unwrap().to_owned());
            }
        }
        graph.insert(package["name"].as_str().unwrap().to_owned(), names);
    }
    graph
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Everything that `name` reaches through crates of the workspace.
fn reached(graph: &BTreeMap<String, BTreeSet<String>>, name: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut waiting = vec![name];
    while let Some(name) = waiting.pop() {
        for dependency in graph.get(name).into_iter().flatten() {
            if reached.insert(dependency.clone()) {
                waiting.push(dependency);
            }
        }
    }
    reached
}

#[test]
fn heavy_library_has_one_owner() {
    let graph = dependencies();
    for (library, owners) in OWNERS {
        let named: Vec<&str> = graph
            .iter()
            .filter(|(_, names)| names.contains(library))
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(named, owners, "{library}");
    }
}

#[test]
fn light_crate_reaches_nothing_heavy() {
    let graph = dependencies();
    for (name, never, why) in NEVER {
        assert!(graph.contains_key(name), "{name} is no crate of the workspace");
        for dependency in reached(&graph, name) {
            let is_forbidden = |rule: &str| {
                dependency == rule || (rule == ANY_OF_OURS && dependency.starts_with(rule))
            };
            assert!(!never.iter().any(|rule| is_forbidden(rule)), "{name} → {dependency}: {why}");
        }
    }
}

#[test]
fn files_of_a_crate_import_in_one_direction() {
    let mut sources = 0;
    let mut found = Vec::new();
    for entry in std::fs::read_dir(workspace().join("host")).unwrap() {
        let source = entry.unwrap().path().join("src");
        if source.is_dir() {
            sources += 1;
            let circle = circles::find(&source);
            if !circle.is_empty() {
                found.push(format!("{}: {}", source.display(), circle.join(" → ")));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(sources > 20, "{sources} crates were found");
    assert_eq!(circles::find(&workspace().join("sdk/src")), Vec::<String>::new());
}

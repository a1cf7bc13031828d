//! The dependency graph: a heavy library is named by one crate alone, and nothing light depends on
//! something heavy.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Crate → the crates that its own manifest names (features ignored, tests and build scripts left
/// out).
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline", "--manifest-path"])
        .arg(manifest)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
    let packages = metadata["packages"].as_array().unwrap().iter().map(|package| {
        let normal = package["dependencies"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|dependency| dependency["kind"].is_null());
        (name(package), normal.map(name).collect())
    });
    packages.collect()
}

fn users<'a>(graph: &'a BTreeMap<String, BTreeSet<String>>, library: &str) -> Vec<&'a str> {
    graph.iter().filter(|(_, uses)| uses.contains(library)).map(|(name, _)| name.as_str()).collect()
}

#[test]
fn each_heavy_library_has_one_owner() {
    let graph = dependencies();
    assert_eq!(users(&graph, "wasmtime"), ["corver-rules"]);
    assert_eq!(users(&graph, "ort"), ["corver-onnx"]);
    assert_eq!(users(&graph, "memmap2"), ["corver-corpus"]);
    assert_eq!(users(&graph, "parquet"), ["corver-corpus"]);
    assert_eq!(users(&graph, "tantivy"), ["corver-passages"]);
    assert_eq!(users(&graph, "ureq"), ["corver-http"]);
    assert_eq!(users(&graph, "hyper"), ["corver-serve"]);
    assert_eq!(users(&graph, "prometheus-client"), ["corver-serve"]);
    assert_eq!(users(&graph, "tch"), ["corver-learn"]);
    assert_eq!(users(&graph, "pyo3"), ["corver-python"]);
    assert_eq!(users(&graph, "plotters"), ["corver-report"]);
    assert_eq!(users(&graph, "maud"), ["corver-report"]);
    assert_eq!(
        users(&graph, "clap"),
        ["corver-demo-models", "corver-host"],
        "the two command lines"
    );
}

/// The crates of this workspace that a crate may name. A crate that is not listed may name any.
const MAY_NAME: [(&str, &[&str], &str); 16] = [
    ("settings", &[], "declarations know nothing of what they configure"),
    ("sdk", &[], "guests and host share no crate: the WIT files are the contract"),
    ("corpus", &[], "the corpus engine is usable alone"),
    ("http", &[], "it knows nothing of what is asked"),
    ("core", &["settings"], "the path is light"),
    ("counts", &["core", "corpus", "http", "settings"], "a count is asked in core's words"),
    ("chat", &["core", "http", "settings"], "asked in core's words"),
    ("engine", &["core", "http", "pretrained"], "a server samples without libtorch"),
    ("passages", &["core", "corpus"], "a search of a corpus's text"),
    ("rules", &["core", "settings"], "a sandbox"),
    ("pretrained", &["core"], "a folder is read without arithmetic"),
    ("recording", &["core"], "answers are written down in core's words"),
    ("learn", &["core", "pretrained", "settings"], "two models' folders are read alike"),
    ("onnx", &["pretrained", "settings"], "it knows nothing of what a model is for"),
    ("study", &["core", "settings"], "training runs without the machinery"),
    ("demo", &["core"], "the demo is read without what made it"),
];

#[test]
fn core_is_light_and_everything_points_towards_it() {
    let graph = dependencies();
    let light = [
        "corver-settings",
        "regex",
        "serde",
        "serde_json",
        "thiserror",
        "tracing",
        "unicode-normalization",
    ];
    assert!(
        graph["corver-core"].iter().all(|used| light.contains(&used.as_str())),
        "{:?}",
        graph["corver-core"]
    );
    for (name, allowed, why) in MAY_NAME {
        let used =
            graph[&format!("corver-{name}")].iter().filter_map(|used| used.strip_prefix("corver-"));
        for used in used {
            assert!(allowed.contains(&used), "corver-{name} names corver-{used}: {why}");
        }
    }
    let reward = &graph["corver-reward"];
    assert!(
        !reward.contains("corver-learn") && !reward.contains("corver-study"),
        "others train with the reward"
    );
    assert!(users(&graph, "corver-demo-models").is_empty(), "a tool");
}

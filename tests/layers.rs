//! The dependency graph: a heavy library is named by one crate alone, and nothing light depends on something heavy.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Crate → the crates that its own manifest names (features ignored, tests and build scripts left out).
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
        let normal =
            package["dependencies"].as_array().unwrap().iter().filter(|dependency| dependency["kind"].is_null());
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
    assert_eq!(users(&graph, "clap"), ["corver-demo-models", "corver-host"], "the two command lines");
}

#[test]
fn core_is_light_and_everything_points_towards_it() {
    let graph = dependencies();
    let light = ["regex", "serde", "serde_json", "thiserror", "tracing", "unicode-normalization"];
    assert!(graph["corver-core"].iter().all(|used| light.contains(&used.as_str())), "{:?}", graph["corver-core"]);

    let ours = |name: &str| -> BTreeSet<&str> {
        graph[name].iter().filter(|used| used.starts_with("corver-")).map(String::as_str).collect()
    };
    assert!(ours("corver-corpus").is_empty(), "the corpus engine is usable alone");
    assert!(ours("corver-sdk").is_empty(), "guests and host share no crate: the WIT files are the contract");
    assert!(ours("corver-http").is_empty(), "it knows nothing of what is asked");
    assert_eq!(ours("corver-chat"), BTreeSet::from(["corver-core", "corver-http"]), "asked in core's words");
    let engine = BTreeSet::from(["corver-core", "corver-http", "corver-pretrained"]);
    assert_eq!(ours("corver-engine"), engine, "a server samples without libtorch");
    let counts = BTreeSet::from(["corver-core", "corver-corpus", "corver-http"]);
    assert_eq!(ours("corver-counts"), counts, "a count is asked in core's words");
    assert_eq!(
        ours("corver-passages"),
        BTreeSet::from(["corver-core", "corver-corpus"]),
        "a search of a corpus's text"
    );
    let serve = ["corver-core", "corver-corpus", "corver-counts", "corver-http", "corver-pretrained"];
    assert_eq!(ours("corver-serve"), BTreeSet::from(serve), "it is handed what scores");
    for part in ["corver-rules", "corver-pretrained", "corver-recording"] {
        assert_eq!(ours(part), BTreeSet::from(["corver-core"]), "{part}");
    }
    let learn = BTreeSet::from(["corver-core", "corver-pretrained"]);
    assert_eq!(ours("corver-learn"), learn, "two models' folders are read alike");
    assert_eq!(ours("corver-onnx"), BTreeSet::from(["corver-pretrained"]), "it knows nothing of what a model is for");
    for part in ["corver-extract", "corver-nli"] {
        assert_eq!(ours(part), BTreeSet::from(["corver-core", "corver-onnx", "corver-pretrained"]), "{part}");
    }
    let reward = ["chat", "core", "corpus", "counts", "demo", "extract", "nli", "passages", "rules", "study"]
        .map(|part| format!("corver-{part}"));
    assert_eq!(ours("corver-reward"), reward.iter().map(String::as_str).collect(), "no policy: others train with it");
    assert_eq!(ours("corver-demo"), BTreeSet::from(["corver-core"]), "the demo is read without what made it");
    assert!(users(&graph, "corver-demo-models").is_empty(), "a tool");
    assert!(!ours("corver-study").contains("corver-demo"));
    assert_eq!(ours("corver-report"), BTreeSet::from(["corver-core", "corver-study"]), "a page shows what was kept");
}

//! The crate graph: a heavy library is named by one crate alone, light crates reach nothing
//! heavy, no dependency is unused, and the files of a crate import each other in one direction.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use regex::Regex;
use serde_json::Value;

mod circles;

/// Library → the crates that name it.
const OWNERS: [(&str, &[&str]); 15] = [
    ("clap", &["corver-demo-models", "corver-host"]),
    ("hyper", &["corver-serve"]),
    ("maud", &["corver-report"]),
    ("memmap2", &["corver-corpus"]),
    ("ort", &["corver-inference"]),
    ("oci-client", &["corver-fetch"]),
    ("parquet", &["corver-corpus"]),
    ("plotters", &["corver-report"]),
    ("prometheus-client", &["corver-serve"]),
    ("pyo3", &["corver-python"]),
    ("rmcp", &["corver-mcp"]),
    ("tantivy", &["corver-backends"]),
    ("tch", &["corver-learn"]),
    ("ureq", &["corver-http"]),
    ("wasmtime", &["corver-rules"]),
];

/// Stands for every crate of the workspace.
const ANY_OF_OURS: &str = "corver-";

/// Crate, what it never reaches, directly or through other crates, and why.
const NEVER: [(&str, &[&str], &str); 12] = [
    ("corver-settings", &[ANY_OF_OURS], "declarations know nothing of what they configure"),
    (
        "corver-sdk",
        &[ANY_OF_OURS],
        "guests and host share no crate: the WIT files are the contract",
    ),
    ("corver-files", &[ANY_OF_OURS], "it replaces files of any kind"),
    ("corver-gpu", &[ANY_OF_OURS], "every crate that computes asks it"),
    ("corver-tokenizer", &[ANY_OF_OURS], "indexes and models read tokenizers with it"),
    ("corver-http", &[ANY_OF_OURS], "it knows nothing of what is requested"),
    ("corver-mcp", &[ANY_OF_OURS], "it knows nothing of what its tools do"),
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

/// The fuzz targets, which import any crate and any library.
const FUZZ: &str = "corver-fuzz";

/// Crate, a dependency that its Rust code does not name, and why it is there.
const UNNAMED: [(&str, &str, &str); 5] = [
    ("corver-demo-models", "torch-sys", "gives the build script the folder of libtorch"),
    ("corver-host", "torch-sys", "gives the build script the folder of libtorch"),
    ("corver-host", "crc32fast", "its features are those of a build with libtorch"),
    ("corver-host", "digest", "its features are those of a build with libtorch"),
    ("corver-host", "getrandom", "its features are those of a build with libtorch"),
];

/// The crates of the workspace without the fuzz targets, as `cargo metadata` describes them.
fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline", "--manifest-path"])
        .arg(workspace().join("Cargo.toml"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut packages = metadata["packages"].as_array().unwrap().clone();
    packages.retain(|package| package["name"] != FUZZ);
    packages
}

/// Crate → the crates that its manifest names, without tests, build scripts and fuzz targets.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let mut graph = BTreeMap::new();
    for package in packages() {
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
fn plain_build_leaves_out_only_what_needs_libtorch() {
    let manifest: toml::Table =
        fs::read_to_string(workspace().join("Cargo.toml")).unwrap().parse().unwrap();
    let folders = |key: &str| -> BTreeSet<String> {
        let list = manifest["workspace"][key].as_array().unwrap();
        list.iter().map(|folder| folder.as_str().unwrap().to_owned()).collect()
    };
    let left_out: Vec<String> =
        folders("members").difference(&folders("default-members")).cloned().collect();
    assert_eq!(left_out, ["host/demo-models", "host/fuzz", "host/learn"]);
    // corver-host names `learn` as an optional dependency, which is off by default.
    let graph = dependencies();
    let reaching: Vec<&str> = graph
        .keys()
        .map(String::as_str)
        .filter(|name| *name != "corver-host" && reached(&graph, name).contains("tch"))
        .collect();
    assert_eq!(reaching, ["corver-demo-models", "corver-learn"]);
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

/// The Rust code in a folder and its subfolders, without comments.
fn code_in(folder: &Path) -> String {
    let mut code = String::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            code.push_str(&code_in(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            for line in fs::read_to_string(&path).unwrap().lines() {
                if !line.trim_start().starts_with("//") {
                    code.push_str(line);
                    code.push('\n');
                }
            }
        }
    }
    code
}

#[test]
fn code_of_a_crate_names_its_dependencies() {
    let mut unnamed = BTreeSet::new();
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        let folder = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap();
        if !folder.parent().unwrap().ends_with("host") {
            continue; // the SDK
        }
        let mut code = code_in(folder);
        if name == "corver-host" {
            code.push_str(&code_in(&workspace().join("tests")));
        }
        for dependency in package["dependencies"].as_array().unwrap() {
            let library = dependency["name"].as_str().unwrap();
            let word = library.replace('-', "_");
            let naming = Regex::new(&format!(r"\b{word}(::|!)|\buse {word}\b")).unwrap();
            if !naming.is_match(&code) {
                unnamed.insert((name.to_owned(), library.to_owned()));
            }
        }
    }
    let expected = UNNAMED.map(|(name, library, _)| (name.to_owned(), library.to_owned()));
    assert_eq!(unnamed, BTreeSet::from(expected));
}

/// Reads the map of docs/architecture.md: each crate with the crates that it imports, in order.
fn map() -> Vec<(String, Vec<String>)> {
    let page = fs::read_to_string(workspace().join("docs/architecture.md")).unwrap();
    let mut map = Vec::new();
    for line in page.lines() {
        let columns: Vec<&str> = line.split('|').map(str::trim).collect();
        if let [_, _, folder, _, imports, _] = columns.as_slice()
            && let Some(name) = folder.strip_prefix("`host/")
        {
            let name = name.trim_end_matches('`').to_owned();
            map.push((name, imports.split(", ").map(str::to_owned).collect()));
        }
    }
    map
}

#[test]
fn map_names_every_import_and_every_import_points_up() {
    let graph = dependencies();
    let map = map();
    for name in graph.keys().filter_map(|name| name.strip_prefix("corver-")) {
        let folder = if name == "host" { "cli" } else { name };
        assert!(name == "sdk" || map.iter().any(|(known, _)| known == folder), "{name}");
    }
    for (place, (name, imports)) in map.iter().enumerate() {
        let Some(dependencies) = graph.get(&format!("corver-{name}")) else { continue };
        if imports == &["any"] {
            continue;
        }
        for dependency in dependencies.iter().filter_map(|name| name.strip_prefix("corver-")) {
            assert!(imports.iter().any(|known| known == dependency), "{name} → {dependency}");
            let is_above = map[..place].iter().any(|(known, _)| known == dependency);
            assert!(is_above, "{name} stands above {dependency}");
        }
    }
}

#[test]
fn files_of_a_crate_import_in_one_direction() {
    let mut sources = 0;
    let mut found = Vec::new();
    for entry in fs::read_dir(workspace().join("host")).unwrap() {
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

//! What goes wrong is told in one clear error.

use std::fs;
use std::path::{Path, PathBuf};

use crate::host::{EXTRACTOR, has_gpu, host, host_with_runtime, small_index};

#[test]
fn wrong_input_gets_one_clear_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| -> PathBuf {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let text_plugin = file("not.wasm", "this is not WebAssembly");
    let config = file("typo.toml", "[rollout]\ntemprature = 0.5\n");
    let questions = file(
        "questions.json",
        r#"[{"question": "who?", "answers": "me"}, {"answers": "nobody asked"}]"#,
    );
    let truncated = folder.path().join("index");
    small_index(&truncated);
    let stream = fs::read(truncated.join("tokenized.0")).unwrap();
    fs::write(truncated.join("tokenized.0"), &stream[..stream.len() / 2]).unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();

    let plugin = |path: &str| host(&["train", "--plugin", path]);
    plugin("nowhere.wasm").bad("there is no plugin nowhere.wasm");
    plugin(&text(&text_plugin)).bad("not.wasm");
    host(&["train", "--config", &text(&config)]).bad("did you mean `rollout.temperature`?");
    host(&["train", "--config", "nowhere.toml"]).bad("nowhere.toml");
    host(&["train", "--set", "update.lr=1"]).bad("did you mean `update.learning_rate`?");
    host(&["train", "--dry-run", "--device", "gpu"])
        .bad("setting `run.device`: the device \"gpu\" is not auto, cpu");
    let wrong = ["train", "--dry-run", "--plugin", "nowhere", "--set", "policy.model=elsewhere"];
    for problem in ["`rule.plugin`: there is no plugin nowhere", "`policy.model`: there is no "] {
        host(&wrong).bad(problem);
    }
    let absurd =
        ["rollout.num_generations=1000000000", "update.lora.r=100000000", "run.threads=100000"];
    let absurd = host(&[&["train"], &absurd.map(|set| ["--set", set]).concat()[..]].concat());
    for problem in [
        "`rollout.num_generations`: 1000000000; it must be from 1 to 100000",
        "`update.lora.r`: ",
        "`run.threads`: 100000; it must be from 1 to 1024",
    ] {
        absurd.bad(problem);
    }
    host(&["train", "--set", "run.steps"]).bad("section.key=value");
    host(&["train", "--set", "run.steps=many"]).bad("run.steps");
    host(&["train", "--set", "checkpoint.every=0"]).bad("checkpoint.every");
    host(&["train", "--config", "demo", "--questions", &text(&questions)]).bad("record 2");
    let on_truncated =
        ["train", "--config", "demo", "--extractor", EXTRACTOR, "--index", &text(&truncated)];
    host(&on_truncated).bad("tokenized.0");
    host(&["index", "verify", "--index", &text(&truncated)]).bad("tokenized.0");
    host(&["train", "--set", "policy.model=nowhere"]).bad("nowhere");
    host(&["train", "--set", "extract.model=nowhere"]).bad("nowhere");
    host(&["train", "--set", "rule.settings.tires=1"]).bad("tires");
    host(&["train", "--out", &format!("{}/run", text(&config))]).bad("typo.toml");
    host(&["train", "--set", "engine.kind=tgi"]).bad("engine.kind");
    host(&["train", "--set", "engine.kind=vllm"]).bad("`engine.url`: not set");
    host(&["train", "--set", "engine.concurrency=0"])
        .bad("`engine.concurrency`: 0; it must be from 1 to 1024");
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap(); // that listens
    let away =
        ["engine.kind=vllm".into(), "engine.model=x".into(), format!("engine.url=http://{nobody}")];
    for command in ["train", "eval"] {
        let sets = away.iter().flat_map(|set| ["--set", set.as_str()]);
        host(&[command, "--config", "demo"].into_iter().chain(sets).collect::<Vec<_>>())
            .bad(&format!("the engine http://{nobody}/v1/models did not answer"));
    }
    host(&["train", "--steps", "many"]).usage("many");
    if !has_gpu() {
        host(&["train", "--device", "cuda:0"]).bad("cuda:0");
    }
}

#[test]
fn doctor_fails_when_required_part_fails() {
    let findings = host(&["doctor", "--json"]).good().json();
    let names: Vec<&str> =
        findings.as_array().unwrap().iter().map(|f| f["what"].as_str().unwrap()).collect();
    assert_eq!(names, ["libtorch", "ONNX Runtime", "rules", "cache", "GPU"]);
    host_with_runtime("/nowhere/libonnxruntime.so", &["doctor"]).bad("missing: ONNX Runtime");
    host_with_runtime("/nowhere/libonnxruntime.so", &["train"]).bad("/nowhere/libonnxruntime.so");
}

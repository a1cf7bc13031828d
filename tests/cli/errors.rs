//! Failures end in one clear error.

use std::fs;
use std::path::{Path, PathBuf};

use crate::host::{EXTRACTOR, has_gpu, host, host_with_driver, host_with_runtime, small_index};
use crate::transcript::Transcript;

#[test]
fn wrong_input_gets_one_clear_error() {
    let mut transcript = Transcript::default();
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
    transcript.add_failure(&plugin("nowhere.wasm"));
    transcript.add_failure(&plugin(&text(&text_plugin)));
    transcript.add_failure(&host(&["train", "--config", &text(&config)]));
    transcript.add_failure(&host(&["train", "--config", "nowhere.toml"]));
    transcript.add_failure(&host(&["train", "--set", "update.lr=1"]));
    transcript.add_failure(&host(&["train", "--dry-run", "--device", "gpu"]));
    let wrong = ["train", "--dry-run", "--plugin", "nowhere", "--set", "policy.model=elsewhere"];
    transcript.add_failure(&host(&wrong));
    let absurd =
        ["rollout.num_generations=1000000000", "update.lora.r=100000000", "run.threads=100000"];
    let absurd = absurd.map(|set| ["--set", set]).concat();
    transcript.add_failure(&host(&[&["train"], &absurd[..]].concat()));
    transcript.add_failure(&host(&["train", "--set", "run.steps"]));
    transcript.add_failure(&host(&["train", "--set", "run.steps=many"]));
    transcript.add_failure(&host(&["train", "--set", "update.learning_rate=\"slow\""]));
    transcript.add_failure(&host(&["train", "--set", "checkpoint.every=0"]));
    transcript.add_failure(&host(&["train", "--config", "demo", "--questions", &text(&questions)]));
    let on_truncated =
        ["train", "--config", "demo", "--extractor", EXTRACTOR, "--index", &text(&truncated)];
    transcript.add_failure(&host(&on_truncated));
    transcript.add_failure(&host(&["index", "verify", "--index", &text(&truncated)]));
    transcript.add_failure(&host(&["train", "--set", "policy.model=nowhere"]));
    transcript.add_failure(&host(&["train", "--set", "extract.model=nowhere"]));
    transcript.add_failure(&host(&["train", "--set", "rule.settings.tires=1"]));
    transcript.add_failure(&host(&["train", "--out", &format!("{}/run", text(&config))]));
    transcript.add_failure(&host(&["train", "--set", "engine.kind=tgi"]));
    transcript.add_failure(&host(&["train", "--set", "engine.kind=vllm"]));
    transcript.add_failure(&host(&["train", "--set", "engine.concurrency=0"]));
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap(); // that listens
    let away =
        ["engine.kind=vllm".into(), "engine.model=x".into(), format!("engine.url=http://{nobody}")];
    for command in ["train", "eval"] {
        let sets = away.iter().flat_map(|set| ["--set", set.as_str()]);
        transcript.add_failure(&host(
            &[command, "--config", "demo"].into_iter().chain(sets).collect::<Vec<_>>(),
        ));
    }
    transcript.add_usage_error(&host(&["train", "--steps", "many"]));
    insta::assert_snapshot!(transcript);
    if !has_gpu() {
        let refused = host(&["train", "--device", "cuda:0"]).found(1);
        assert!(refused.stderr.contains("`cuda:0` is not available"), "{refused}");
    }
}

#[test]
fn doctor_fails_when_required_part_fails() {
    let mut transcript = Transcript::default();
    let findings = host(&["doctor", "--json"]).good().json();
    let names: Vec<&str> =
        findings.as_array().unwrap().iter().map(|f| f["what"].as_str().unwrap()).collect();
    assert_eq!(names, ["libtorch", "ONNX Runtime", "rules", "cache", "cargo", "GPU"]);
    let mut doctor = host_with_runtime("/nowhere/libonnxruntime.so", &["doctor"]);
    // The other parts are as they are on this machine.
    doctor.stdout =
        doctor.stdout.lines().filter(|line| line.starts_with("missing")).collect::<String>();
    transcript.add_failure(&doctor);
    transcript.add_failure(&host_with_runtime("/nowhere/libonnxruntime.so", &["train"]));
    insta::assert_snapshot!(transcript);
}

#[test]
fn long_prompt_is_refused_before_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let [prompt, sentences] = ["prompt.txt", "sentences.txt"].map(|name| folder.path().join(name));
    fs::write(&sentences, "Lima is a city.\n").unwrap();
    // A terabyte without content: whoever reads it all has no memory left.
    fs::File::create(&prompt).unwrap().set_len(1 << 40).unwrap();
    let set = format!("extract.prompt={}", prompt.display());
    let args = ["extract", sentences.to_str().unwrap(), "--extractor", EXTRACTOR, "--set", &set];
    let finished = host(&args).found(1);
    assert!(finished.stderr.contains("prompt.txt: it is longer than 1048576 bytes"), "{finished}");
}

#[test]
fn warning_of_long_sentence_quotes_its_start() {
    let folder = tempfile::tempdir().unwrap();
    let sentences = folder.path().join("sentences.txt");
    fs::write(&sentences, format!("{}.\n", "word ".repeat(20_000))).unwrap();
    let args = ["extract", sentences.to_str().unwrap(), "--extractor", EXTRACTOR];
    let finished = host(&args).good();
    assert!(finished.stderr.contains("skipped a sentence"), "{finished}");
    assert!(finished.stderr.len() < 1_000, "{}", finished.stderr.len());
}

/// The libraries of this machine are built for the CPU, or their driver is missing.
#[test]
fn gpu_that_cannot_be_used_is_reported_and_not_replaced_by_cpu() {
    if has_gpu() {
        return;
    }
    let train = host_with_driver("550.54.15", &["train", "--device", "auto", "--steps", "1"]);
    assert_eq!(train.code, Some(1));
    assert!(train.stderr.contains("device `auto` is not available"), "{}", train.stderr);
    assert!(train.stderr.contains("NVIDIA H100 (driver 550.54.15)"), "{}", train.stderr);
    assert!(train.stderr.contains("--device cpu"), "{}", train.stderr);

    let doctor = host_with_driver("550.54.15", &["doctor", "--json"]);
    assert_eq!(doctor.code, Some(1));
    let findings = doctor.json();
    let found = |what: &str| {
        let findings = findings.as_array().unwrap();
        findings.iter().find(|finding| finding["what"] == what).unwrap().clone()
    };
    assert_eq!(found("GPU")["found"], "NVIDIA H100 (driver 550.54.15)");
    assert_eq!(found("libtorch")["good"], false);
    assert!(found("libtorch")["found"].as_str().unwrap().contains("driver 550.54.15"));
}

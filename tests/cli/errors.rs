//! Failures end in one clear error.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::host::{EXTRACTOR, command, has_gpu, host, host_with, host_with_driver, small_index};
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
fn argument_that_is_not_utf8_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join(OsStr::from_bytes(b"explained\xff.html"));
    let finished = command(&["explain", "run", "--json", "--out"]).arg(&out).output().unwrap();
    let stderr = String::from_utf8(finished.stderr).unwrap();
    assert_eq!(finished.status.code(), Some(2), "{stderr}");
    assert!(stderr.ends_with("explained\u{fffd}.html is not UTF-8; rename the file\n"), "{stderr}");
}

/// `script` runs the command on a terminal.
#[test]
fn no_color_applies_to_log_messages() {
    let shown = |no_color: &str| {
        let check = format!("'{}' -v plugin check first.wasm", env!("CARGO_BIN_EXE_corver-host"));
        let mut script = Command::new("script");
        script.args(["-qec", &check, "/dev/null"]).env("NO_COLOR", no_color).env_remove("RUST_LOG");
        script.env("XDG_CACHE_HOME", Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"));
        String::from_utf8(script.output().expect("util-linux has it").stdout).unwrap()
    };
    let (coloured, plain) = (shown(""), shown("1"));
    assert!(coloured.contains("\x1b[32m INFO\x1b[0m "), "{coloured}");
    assert!(plain.contains(" INFO ") && !plain.contains('\x1b'), "{plain}");
}

#[test]
fn doctor_fails_when_required_part_fails() {
    let mut transcript = Transcript::default();
    let findings = host(&["doctor", "--json"]).good().json();
    let names: Vec<&str> =
        findings.as_array().unwrap().iter().map(|f| f["what"].as_str().unwrap()).collect();
    assert_eq!(names, ["libtorch", "ONNX Runtime", "rules", "cache", "cargo", "GPU"]);
    let nowhere = |name| host_with("ORT_DYLIB_PATH", "/nowhere/libonnxruntime.so", &[name]);
    let mut doctor = nowhere("doctor");
    // The other parts are as they are on this machine.
    doctor.stdout =
        doctor.stdout.lines().filter(|line| line.starts_with("missing")).collect::<String>();
    transcript.add_failure(&doctor);
    transcript.add_failure(&nowhere("train"));
    insta::assert_snapshot!(transcript);
}

/// Returns the finding of `doctor` on a part.
fn find_part(part: &str, doctor: &mut Command) -> Value {
    let findings: Vec<Value> = serde_json::from_slice(&doctor.output().unwrap().stdout).unwrap();
    findings.into_iter().find(|finding| finding["what"] == part).unwrap()
}

/// The cache has machine code, which must not come from the current folder.
#[test]
fn relative_cache_folder_counts_as_not_set() {
    let folder = tempfile::tempdir().unwrap();
    let find = |cache: &str, user_home: &str| {
        let mut doctor = command(&["doctor", "--json"]);
        doctor.env("XDG_CACHE_HOME", cache).env("HOME", user_home).current_dir(&folder);
        doctor.env("PATH", ""); // without cargo, whose rustup would need a home
        find_part("cache", &mut doctor)
    };
    let home = folder.path().to_str().unwrap();
    for cache in ["", "cache"] {
        assert_eq!(find(cache, home)["found"], format!("{home}/.cache/corver"));
    }
    for other in ["", "home"] {
        let found = find("cache", other);
        assert_eq!(found["good"], false);
        let reason = "neither XDG_CACHE_HOME nor HOME is an absolute path";
        assert!(found["found"].as_str().unwrap().contains(reason), "{found}");
    }
}

#[test]
fn empty_path_of_onnx_runtime_counts_as_not_set() {
    let mut doctor = command(&["doctor", "--json"]);
    let expected = find_part("ONNX Runtime", doctor.env_remove("ORT_DYLIB_PATH"));
    assert_eq!(find_part("ONNX Runtime", doctor.env("ORT_DYLIB_PATH", "")), expected);
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

//! Models as users have them: downloaded under a name, with prompts of every length and switches of
//! their own.

use std::fs;
use std::path::Path;

use crate::host::{Finished, demo_policy, host_with_cache, small_index};
use crate::transcript::Transcript;

/// Evaluates one question with these settings.
fn evaluate(cache: &Path, set: &[&str]) -> Finished {
    let set: Vec<&str> = set.iter().flat_map(|set| ["--set", set]).collect();
    host_with_cache(
        cache,
        &[&["eval", "--config", "demo", "--limit", "1", "--device", "cpu", "--json"], &set[..]]
            .concat(),
    )
}

#[test]
fn downloaded_model_is_found_by_name() {
    let mut transcript = Transcript::default();
    let cache = tempfile::tempdir().unwrap();
    let repository = cache.path().join("huggingface/hub/models--some-one--Demo-1.0");
    transcript.add_failure(&evaluate(cache.path(), &["policy.model=some-one/Demo-1.0"]));
    demo_policy(cache.path(), &repository.join("snapshots/abc"));
    fs::create_dir(repository.join("refs")).unwrap();
    fs::write(repository.join("refs/main"), "abc\n").unwrap();
    let named = evaluate(cache.path(), &["policy.model=some-one/Demo-1.0"]).good().json();
    assert_eq!(named, evaluate(cache.path(), &[]).good().json());
    transcript.add_failure(&evaluate(cache.path(), &["policy.model=some-one/Other"]));
    insta::assert_snapshot!(transcript);
}

#[test]
fn downloaded_index_is_found_by_name() {
    let cache = tempfile::tempdir().unwrap();
    let repository = cache.path().join("huggingface/hub/datasets--some-one--wiki");
    let index = repository.join("snapshots/abc");
    fs::create_dir_all(repository.join("snapshots")).unwrap();
    small_index(&index);
    fs::create_dir(repository.join("refs")).unwrap();
    fs::write(repository.join("refs/main"), "abc\n").unwrap();
    let of = |command: &[&str], name| {
        host_with_cache(cache.path(), &[command, &["--index", name, "--json"]].concat())
    };
    let info = |name| of(&["index", "info"], name).good().stdout;
    assert_eq!(info("some-one/wiki"), info(index.to_str().unwrap()));
    let counted = of(&["index", "count", "Peru"], "some-one/wiki").good().json();
    assert_eq!(counted["precision"], "exact");
    let missing = of(&["index", "count", "Peru"], "some-one/other").found(1).stderr;
    assert!(missing.contains("hf download --repo-type dataset some-one/other"), "{missing}");
}

#[test]
fn downloaded_dataset_is_indexed_by_name() {
    let cache = tempfile::tempdir().unwrap();
    let repository = cache.path().join("huggingface/hub/datasets--some-one--texts");
    let part = repository.join("snapshots/abc/en");
    fs::create_dir_all(&part).unwrap();
    fs::create_dir(repository.join("refs")).unwrap();
    fs::write(repository.join("refs/main"), "abc").unwrap();
    // The hub's tools write links to files with other names.
    let text = repository.join("text");
    fs::write(&text, r#"{"text": "The capital of Peru is Lima."}"#).unwrap();
    std::os::unix::fs::symlink(&text, part.join("a.jsonl")).unwrap();
    let tokenizer = concat!(env!("CARGO_MANIFEST_DIR"), "/../demo/assets/policy/tokenizer.json");
    let build = |name: &str, out: &str| {
        let out = cache.path().join(out).display().to_string();
        let build = ["index", "build", name, "--tokenizer", tokenizer, "--out", &out, "--json"];
        host_with_cache(cache.path(), &build)
    };
    for (name, out) in [("some-one/texts", "all"), ("some-one/texts/en", "part")] {
        assert_eq!(build(name, out).good().json()["index"]["documents"], 1);
    }
    assert!(build("some-one/texts/de", "no").stderr.contains("snapshots/abc/de"));
}

#[test]
fn switches_reach_the_chat_template() {
    let mut transcript = Transcript::default();
    let cache = tempfile::tempdir().unwrap();
    let model = cache.path().join("model");
    demo_policy(cache.path(), &model);
    let template = "{% if enable_thinking is false %}{{ raise_exception('no thinking') }}{% endif %}{{ messages[-1].content }}";
    fs::write(model.join("chat_template.jinja"), template).unwrap();
    let model = format!("policy.model={}", model.display());
    evaluate(cache.path(), &[&model]).good();
    transcript
        .add_failure(&evaluate(cache.path(), &[&model, "policy.chat={ enable_thinking = false }"]));
    insta::assert_snapshot!(transcript);
}

#[test]
fn merged_model_answers_like_adapter() {
    let mut transcript = Transcript::default();
    let cache = tempfile::tempdir().unwrap();
    let (run, merged) = (cache.path().join("run"), cache.path().join("merged"));
    let train = [
        "train",
        "--device",
        "cpu",
        "--steps",
        "2",
        "--set",
        "question.prompts_per_step=2",
        "--set",
        "question.eval_limit=1",
    ];
    let rate = ["--set", "update.learning_rate=0.01", "--out", run.to_str().unwrap()];
    host_with_cache(cache.path(), &[&train[..], &rate].concat()).good();
    let adapter = run.join("checkpoints/step-000002");
    let (adapter, out) = (adapter.to_str().unwrap(), merged.to_str().unwrap());
    host_with_cache(cache.path(), &["merge", "--config", "demo", "--device", "cpu", adapter, out])
        .good();
    transcript.add_failure(&host_with_cache(
        cache.path(),
        &["merge", "--config", "demo", "--device", "cpu", adapter, out],
    ));
    let answers = |more: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("answers");
        let eval = [
            "eval",
            "--config",
            "demo",
            "--limit",
            "8",
            "--device",
            "cpu",
            "--out",
            out.to_str().unwrap(),
            "--set",
            "eval.trained_suffix=",
        ];
        host_with_cache(cache.path(), &[&eval[..], more].concat()).good();
        let mut files = fs::read_dir(out).unwrap().map(|entry| entry.unwrap().path());
        let answers = files
            .find(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
            .unwrap();
        fs::read_to_string(answers).unwrap()
    };
    let of_merged = answers(&["--set", &format!("policy.model={out}")]);
    assert_eq!(of_merged, answers(&["--adapter", adapter]));
    assert_ne!(of_merged, answers(&[]));
    // What `transformers` needs, and no second set of weights.
    let files: Vec<_> =
        fs::read_dir(&merged).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    for name in [
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
        "model.safetensors",
    ] {
        assert!(files.iter().any(|file| file == name), "{name} is missing: {files:?}");
    }
    insta::assert_snapshot!(transcript);
}

#[test]
fn long_prompts_are_rejected_early_or_truncated() {
    let mut transcript = Transcript::default();
    let cache = tempfile::tempdir().unwrap();
    let out = cache.path().join("run");
    let train = |more: &[&str]| {
        let args = ["train", "--device", "cpu", "--steps", "1", "--out", out.to_str().unwrap()];
        let short =
            ["question.prompts_per_step=1", "question.eval_limit=1", "rollout.max_prompt_length=5"];
        let set: Vec<&str> = short.iter().chain(more).flat_map(|set| ["--set", set]).collect();
        host_with_cache(cache.path(), &[&args[..], &set[..]].concat())
    };
    transcript.add_failure(&train(&[]));
    assert!(!out.exists(), "nothing had begun");
    transcript.add(&train(&["rollout.long_prompts=truncate"]).good().without_figures());
    insta::assert_snapshot!(transcript);
}

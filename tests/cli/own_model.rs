//! The documented commands with a model, a corpus and questions of the user's own: small ones, as
//! folders and files.

use std::fs;
use std::path::{Path, PathBuf};

use corver_settings::{Settings, TrainQuestions};
use serde_json::Value;

use crate::host::host;

const ASSETS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../demo/assets");

/// A policy, an extractor, an index and questions, all named by their paths.
struct Own {
    folder: tempfile::TempDir,
}

impl Own {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let own = Self { folder };
        host(&["demo", "world", &own.path("world")]).good();
        let (articles, tokenizer) =
            (own.path("world/articles.jsonl"), Self::asset("policy/tokenizer.json"));
        host(&[
            "index",
            "build",
            &articles,
            "--tokenizer",
            &tokenizer,
            "--out",
            &own.path("index"),
        ])
        .good();
        own
    }

    fn asset(name: &str) -> String {
        format!("{ASSETS}/{name}")
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// The first questions of a set.
    fn few(&self, set: &str, number: usize) -> String {
        let questions: Vec<Value> =
            serde_json::from_str(&fs::read_to_string(self.path(set)).unwrap()).unwrap();
        let path = self.path("few.json");
        fs::write(&path, serde_json::to_string(&questions[..number]).unwrap()).unwrap();
        path
    }
}

/// The tiny model was made without a prompt, and its context is short.
const TINY: [&str; 8] = [
    "--set",
    "policy.system_prompt=''",
    "--set",
    "rollout.max_completion_length=48",
    "--set",
    "eval.answers.max_completion_length=48",
    "--device",
    "cpu",
];

#[test]
fn own_parts_run_uses_paper_settings() {
    let own = Own::new();
    let (model, extractor) = (Own::asset("policy"), Own::asset("extractor"));
    let (index, questions) = (own.path("index"), own.path("world/train.json"));
    let parts = [
        "--model",
        &model,
        "--extractor",
        &extractor,
        "--index",
        &index,
        "--questions",
        &questions,
    ];
    let shown = host(&[&["train", "--dry-run", "--json"], &parts[..]].concat()).good();
    let mut resolved: Settings = serde_json::from_value(shown.json()["settings"].clone()).unwrap();
    assert_eq!(shown.stderr, "", "nothing of the demo is beneath");

    let absolute =
        |path: &str| PathBuf::from(path).components().collect::<PathBuf>().display().to_string();
    let mut expected = Settings::default();
    expected.policy.model = Some(model);
    expected.extract.model = Some(extractor);
    expected.corpus.index = vec![absolute(&index)];
    expected.question.train = Some(TrainQuestions::Set(absolute(&questions)));
    // Measured or planned when the run begins.
    assert!((1..1024).contains(&resolved.run.threads.take().unwrap()));
    resolved.policy.max_rows = expected.policy.max_rows;
    resolved.update.micro_batch_tokens = expected.update.micro_batch_tokens;
    assert_eq!(resolved, expected);
    assert_eq!((resolved.update.learning_rate, resolved.update.lora.r), (1e-5, 128));
}

#[test]
fn missing_parts_are_listed_with_flag() {
    let missing = |args: &[&str], flags: &[&str]| {
        let finished = host(args);
        finished.bad(flags[0]);
        for flag in flags {
            assert!(finished.stderr.contains(flag), "{flag} in {}", finished.stderr);
        }
        assert!(!finished.stderr.contains("built-in demo\n"), "{}", finished.stderr);
    };
    let policy = Own::asset("policy");
    missing(
        &["train", "--model", &policy],
        &["--questions FILE", "--extractor DIR|NAME", "--index DIR|URL#NAME"],
    );
    missing(&["filter", "--questions", "nowhere.json"], &["--model DIR|NAME", "there is no "]);
    missing(&["eval", "--adapter", "nowhere"], &["--model DIR|NAME", "--questions FILE"]);
    missing(&["sft", "nowhere.jsonl"], &["--model DIR|NAME"]);
    missing(&["merge", "nowhere", "out"], &["--model DIR|NAME"]);
    missing(&["data", "pool", "nowhere.jsonl"], &["--index DIR|URL#NAME"]);
    missing(
        &["check", "--text", "x", "--extractor", &Own::asset("extractor")],
        &["--index DIR|URL#NAME"],
    );
    missing(&["serve", "--index", ASSETS], &["--extractor DIR|NAME"]);
    missing(
        &["train", "--config", "/dev/null"],
        &["--model DIR|NAME", "--questions FILE", "--extractor", "--index"],
    );
}

#[test]
fn ignored_arguments_are_rejected() {
    host(&["eval", "--plugin", "min.wasm"])
        .bad("--plugin, --extractor and --index are for --supported");
    let engine =
        ["train", "--dry-run", "--config", "demo", "--set", "engine.url=http://localhost:8000"];
    host(&engine).bad("`engine.kind`: not set, but other settings of an engine are");
    let chat = ["train", "--dry-run", "--config", "demo", "--set", "verify.chat.model=gpt"];
    host(&chat).bad("`verify.chat.endpoint`: not set, but `verify.chat.model` is");
    let budget =
        ["--set", "verify.chat.endpoint=http://localhost:1", "--set", "verify.chat.max_cost=1"];
    host(&[&chat[..], &budget].concat())
        .bad("`verify.chat.prices`: not set, but `verify.chat.max_cost` is");
    host(&["train", "--dry-run", "--config", "demo", "--set", "question.train=[[]]"])
        .bad("with at least one of each");
    let run = tempfile::tempdir().unwrap();
    fs::write(run.path().join("adapter_config.json"), "{}").unwrap();
    let adapter = format!("policy.adapter={}", run.path().display());
    host(&["eval", "--config", "demo", "--set", &adapter])
        .bad("an evaluation needs --adapter for it");
}

#[test]
fn demo_may_be_named_as_part() {
    host(&["index", "info", "--index", "demo"]).good();
    host(&["index", "search", "anything", "--index", "demo"]).good();
    let few = ["eval", "--questions", "demo", "--limit", "2", "--json", "--device", "cpu"];
    assert!(
        host(&few).good().json()[0]["true_sentences"].is_number(),
        "the truth of the demo's world is known"
    );
}

#[test]
fn demo_extractor_rejects_other_corpus() {
    let text = ["check", "--config", "demo", "--text", "x", "--index", ASSETS];
    host(&text).bad(
        "the demo's extractor reads the demo's sentences alone; --extractor DIR|NAME names one",
    );
}

#[test]
fn own_model_pipeline_runs_from_pool_to_merge() {
    let own = Own::new();
    let (model, extractor, index) =
        (Own::asset("policy"), Own::asset("extractor"), own.path("index"));
    let (pool, zone, run) = (own.path("pool"), own.path("zone"), own.path("run"));
    let few = own.few("world/train.json", 24);
    host(&[
        "data",
        "pool",
        &few,
        "--not-in",
        &own.path("world/eval.json"),
        "--index",
        &index,
        "--out",
        &pool,
    ])
    .good();
    let kept = format!("{pool}/questions.jsonl");
    let filter = ["filter", "--model", &model, "--questions", &kept, "--out", &zone];
    host(
        &[&filter[..], &TINY, &["--set", "filter.max_completion_length=48", "--anchors", "2"]]
            .concat(),
    )
    .good();
    let zone = format!("{zone}/questions.jsonl");
    assert!(fs::read_to_string(&zone).unwrap().lines().count() > 2);

    let parts =
        ["--model", &model, "--extractor", &extractor, "--index", &index, "--questions", &zone];
    let small = [
        "--steps",
        "2",
        "--set",
        "question.prompts_per_step=2",
        "--set",
        "rollout.num_generations=4",
    ];
    let train =
        [&["train", "--out", &run], &parts[..], &TINY, &small, &["--set", "update.lora.r=8"]]
            .concat();
    host(&train).good();
    let adapter = format!("{run}/checkpoints/step-000002");

    let (eval, answers) = (own.path("world/eval.json"), own.path("answers"));
    let evaluated = [
        "eval",
        "--model",
        &model,
        "--questions",
        &eval,
        "--limit",
        "6",
        "--raw",
        "--adapter",
        &adapter,
    ];
    host(&[&evaluated[..], &["--out", &answers], &TINY].concat()).good();
    let raw = host(
        &[
            &["eval", "--raw", "--json", "--limit", "6", "--model", &model, "--questions", &eval],
            &TINY[..],
        ]
        .concat(),
    );
    assert_eq!(raw.good().json()[0]["policy"], "raw", "--raw needs no adapter");
    let (first, second) =
        (format!("{answers}/raw.eval.jsonl"), format!("{answers}/run-step-000002.eval.jsonl"));
    assert!(Path::new(&first).exists() && Path::new(&second).exists());
    let merged = own.path("merged");
    host(&["merge", "--model", &model, &adapter, &merged, "--device", "cpu"]).good();
    assert!(Path::new(&merged).join("config.json").exists());
}

#[test]
fn filter_without_remaining_questions_fails() {
    let own = Own::new();
    let (model, few, out) =
        (Own::asset("policy"), own.few("world/train.json", 2), own.path("zone"));
    let filter = ["filter", "--model", &model, "--questions", &few, "--out", &out];
    let none = ["--set", "filter.max_completion_length=1", "--set", "filter.num_generations=2"];
    host(&[&filter[..], &TINY, &none].concat()).bad("nothing is left to train on");
}

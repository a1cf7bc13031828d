//! The documented commands with a model, a corpus and questions of the user's own: small ones, as
//! folders and files.

use std::fs;
use std::path::{Path, PathBuf};

use corver_settings::{Settings, TrainQuestions};
use serde_json::Value;

use crate::host::host;
use crate::transcript::Transcript;

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
    let mut transcript = Transcript::default();
    let (policy, extractor) = (Own::asset("policy"), Own::asset("extractor"));
    for args in [
        &["train", "--model", &policy][..],
        &["filter", "--questions", "nowhere.json"],
        &["eval", "--adapter", "nowhere"],
        &["sft", "nowhere.jsonl"],
        &["merge", "nowhere", "out"],
        &["data", "pool", "nowhere.jsonl"],
        &["check", "--text", "x", "--extractor", &extractor],
        &["serve", "--index", ASSETS],
        &["train", "--config", "/dev/null"],
    ] {
        transcript.add_failure(&host(args));
    }
    insta::assert_snapshot!(transcript);
}

#[test]
fn ignored_arguments_are_rejected() {
    let mut transcript = Transcript::default();
    transcript.add_failure(&host(&["eval", "--plugin", "min.wasm"]));
    let engine =
        ["train", "--dry-run", "--config", "demo", "--set", "engine.url=http://localhost:8000"];
    transcript.add_failure(&host(&engine));
    let chat = ["train", "--dry-run", "--config", "demo", "--set", "backends.chat.model=gpt"];
    transcript.add_failure(&host(&chat));
    let budget =
        ["--set", "backends.chat.endpoint=http://localhost:1", "--set", "backends.chat.max_cost=1"];
    transcript.add_failure(&host(&[&chat[..], &budget].concat()));
    transcript.add_failure(&host(&[
        "train",
        "--dry-run",
        "--config",
        "demo",
        "--set",
        "question.train=[[]]",
    ]));
    let run = tempfile::tempdir().unwrap();
    fs::write(run.path().join("adapter_config.json"), "{}").unwrap();
    let adapter = format!("policy.adapter={}", run.path().display());
    transcript.add_failure(&host(&["eval", "--config", "demo", "--set", &adapter]));
    insta::assert_snapshot!(transcript);
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
    let mut transcript = Transcript::default();
    let text = ["check", "--config", "demo", "--text", "x", "--index", ASSETS];
    transcript.add_failure(&host(&text));
    insta::assert_snapshot!(transcript);
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
        "--exclude",
        &own.path("world/eval.json"),
        "--index",
        &index,
        "--out",
        &pool,
    ])
    .good();
    let retained = format!("{pool}/questions.jsonl");
    let filter = ["filter", "--model", &model, "--questions", &retained, "--out", &zone];
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
    let mut transcript = Transcript::default();
    let own = Own::new();
    let (model, few, out) =
        (Own::asset("policy"), own.few("world/train.json", 2), own.path("zone"));
    let filter = ["filter", "--model", &model, "--questions", &few, "--out", &out];
    let none = ["--set", "filter.max_completion_length=1", "--set", "filter.num_generations=2"];
    transcript.add_failure(&host(&[&filter[..], &TINY, &none].concat()));
    insta::assert_snapshot!(transcript);
}

//! Filtering questions, and training on what is left.

use std::fs;

use serde_json::json;

use crate::host::{host, lines, run_dir, short_run_args, signal_when};
use crate::transcript::Transcript;

#[test]
fn filtered_pool_resumes_and_trains() {
    let mut transcript = Transcript::default();
    let out = run_dir("filtered");
    let pool = out.with_extension("pool.json");
    let world = run_dir("filtered.world");
    host(&["demo", "world", world.to_str().unwrap()]).good();
    let all: Vec<serde_json::Value> =
        serde_json::from_str(&fs::read_to_string(world.join("train.json")).unwrap()).unwrap();
    let (graded, without): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|question| question["answers"] != json!([]));
    fs::write(&pool, json!([&graded[..48], &without[..6]].concat()).to_string()).unwrap();

    let log = out.join("answered.jsonl");
    let filter = |more: &[&str]| {
        let args = [
            "filter",
            "--config",
            "demo",
            "--json",
            "--questions",
            pool.to_str().unwrap(),
            "--out",
            out.to_str().unwrap(),
        ];
        let small = ["--set", "filter.batch=8", "--set", "filter.num_generations=8"];
        [&args[..], &small, more].concat().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let stopped =
        signal_when("-INT", &filter(&[]).iter().map(String::as_str).collect::<Vec<_>>(), || {
            !lines(&log).is_empty()
        });
    let answered = lines(&log);
    transcript.add(&stopped.good().masked(r"after \d+ of", "after # of"));
    assert!(
        !out.join("summary.json").exists() && answered.len() < 48,
        "{} answered",
        answered.len()
    );

    let resume = ["filter", "--json", "--out", out.to_str().unwrap(), "--resume"];
    let filtered: serde_json::Value = serde_json::from_str(&host(&resume).good().stdout).unwrap();
    assert_eq!(lines(&log)[..answered.len()], answered);
    let by_num_correct: Vec<u64> =
        serde_json::from_value(filtered["by_num_correct"].clone()).unwrap();
    assert_eq!(by_num_correct.iter().sum::<u64>(), 48);
    let retained = lines(&out.join("questions.jsonl"));
    assert_eq!(retained.len() as u64, by_num_correct[1..8].iter().sum::<u64>());
    assert!(retained.len() > 2, "{filtered}");

    let none_drawn = host(&[&resume[..], &["--anchors", "1000"]].concat()).good();
    transcript.add(&none_drawn.without_figures());
    assert_eq!(
        lines(&out.join("questions.jsonl")).len() as u64,
        by_num_correct[1..].iter().sum::<u64>()
    );
    transcript.add_failure(&host(&[&resume[..], &["--set", "filter.temperature=1.0"]].concat()));

    let run = run_dir("on-a-filtered-pool");
    let questions = format!("question.train={}", out.join("questions.jsonl").display());
    host(&short_run_args(&run, "1", &["--config", "demo", "--set", &questions])).good();
    insta::assert_snapshot!(transcript);
}

//! Several policies on several question sets, and whether one is better.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::host::{host, lines, run_dir, short_run};
use crate::transcript::Transcript;

#[test]
fn policies_are_evaluated_and_compared() {
    let mut transcript = Transcript::default();
    let run = run_dir("to-evaluate");
    short_run(&run, 2, &[]).good();
    let adapter = run.join("checkpoints/step-000002");
    let world = run.join("world");
    host(&["demo", "world", world.to_str().unwrap()]).good();
    let mut all: Vec<Value> =
        serde_json::from_str(&fs::read_to_string(world.join("eval.json")).unwrap()).unwrap();
    all.iter_mut().enumerate().for_each(|(n, question)| question["popularity"] = json!(n));
    let [one, two] = [("one", &all[..24]), ("two", &all[24..40])].map(|(name, questions)| {
        let path = world.join(name).with_extension("json");
        fs::write(&path, json!(questions).to_string()).unwrap();
        path
    });

    let out = run.join("answers");
    let both = [
        "eval",
        "--config",
        "demo",
        "--device",
        "cpu",
        "--questions",
        one.to_str().unwrap(),
        "--questions",
        two.to_str().unwrap(),
    ];
    let policies = ["--raw", "--adapter", adapter.to_str().unwrap()];
    // Neither is opened.
    let unused = ["--set", "corpus.index=nowhere", "--set", "extract.model=nowhere"];
    let written = ["--out", out.to_str().unwrap(), "--json"];
    let evaluated = host(&[&both[..], &policies, &unused, &written].concat()).good().json();
    let named: Vec<(&str, &str)> = evaluated
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["policy"].as_str().unwrap(), row["questions"].as_str().unwrap()))
        .collect();
    let trained = "to-evaluate-step-000002";
    assert_eq!(named, [("raw", "one"), ("raw", "two"), (trained, "one"), (trained, "two")]);
    assert_eq!(evaluated[0]["supported_rate"], Value::Null);
    let raw = out.join("raw.one.jsonl");
    let right = lines(&raw).iter().filter(|line| line["grade"] == "GOOD").count();
    assert_eq!(evaluated[0]["grades"]["correct"], right);
    transcript.add_failure(&host(&[&both[..], &policies, &unused, &written].concat()));

    let resume = |more: &[&str]| {
        host(&[&both[..], &policies, &unused, &written, &["--resume"], more].concat())
    };
    transcript.add_failure(&resume(&["--set", "eval.answers.max_completion_length=50"]));
    let mut kept = lines(&raw);
    kept[0]["length"] = json!(1_000_000);
    fs::write(&raw, kept.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    fs::remove_file(out.join("raw.two.jsonl")).unwrap();
    let resumed = resume(&[]).good().json();
    assert!(
        resumed[0]["mean_length"].as_f64().unwrap() > 40_000.0,
        "what was answered is read, not answered again"
    );
    assert_eq!(resumed.as_array().unwrap()[1..], evaluated.as_array().unwrap()[1..]);
    let supported =
        host(&[&both[..3], &["--limit", "8", "--supported", "--json"]].concat()).good().json();
    assert!(supported[0]["supported_rate"].is_number(), "{supported}");

    let other = out.join(format!("{trained}.one.jsonl"));
    let (raw, other) = (raw.to_str().unwrap(), other.to_str().unwrap());
    let diff = host(&["eval", "diff", raw, other, "--json"]).good().json();
    let [before, after] = [0, 1].map(|n| diff["grades"][n]["correct"].as_f64().unwrap());
    assert_eq!(
        (before, after),
        (right as f64, evaluated[2]["grades"]["correct"].as_f64().unwrap())
    );
    assert!((diff["accuracy"]["value"].as_f64().unwrap() - (after - before) / 24.0).abs() < 1e-12);
    let [was_refused, is_refused] =
        [0, 1].map(|n| diff["grades"][n]["not_attempted"].as_f64().unwrap() / 24.0);
    let refusals = &diff["refusals"];
    assert_eq!(
        (refusals["first"].as_f64(), refusals["second"].as_f64()),
        (Some(was_refused), Some(is_refused))
    );
    let now_right = diff["moves"][2][0].as_u64();
    assert_eq!(refusals["correct"].as_u64(), now_right);
    let (all, quarters) = diff["by_popularity"].as_array().unwrap().split_last().unwrap();
    let right_of = |group: &Value| group["grades"][1]["correct"].as_u64().unwrap();
    assert_eq!((&all["quarter"], &all["accuracy"]), (&Value::Null, &diff["accuracy"]));
    assert_eq!(quarters.iter().map(right_of).sum::<u64>(), right_of(all));
    assert!(
        quarters.windows(2).all(|pair| pair[0]["to"].as_u64() < pair[1]["from"].as_u64()),
        "{quarters:?}"
    );
    let same = host(&["eval", "diff", raw, raw]).good();
    assert!(same.stdout.contains("p = 1.000"), "{same}");
    transcript.add(&same.without_figures());
    transcript.add_failure(&host(&[
        "eval",
        "diff",
        raw,
        out.join("raw.two.jsonl").to_str().unwrap(),
    ]));
    let metrics = run.join("metrics.jsonl");
    let diff = host(&["eval", "diff", raw, metrics.to_str().unwrap()]);
    transcript.add_failure(&diff.masked(r"column \d+", "column #"));
    insta::assert_snapshot!(transcript);
}

#[test]
fn support_is_refused_for_rules_that_need_more_than_counts() {
    let eval = ["eval", "--questions", "demo", "--device", "cpu", "--supported"];
    let refused = host(&[&eval[..], &["--plugin", "fspo.wasm"]].concat()).found(1);
    let expected = "`rule.plugin`: fspo requires nli, but --supported only counts";
    assert!(refused.stderr.contains(expected), "{refused}");
}

#[test]
fn refused_folder_leaves_no_recording() {
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("counts.jsonl");
    let taken = folder.path().join("taken");
    fs::create_dir(&taken).unwrap();
    fs::write(taken.join("notes.txt"), "").unwrap();
    let eval = |out: &Path| {
        let eval =
            ["eval", "--questions", "demo", "--device", "cpu", "--limit", "1", "--supported"];
        let files = ["--record", recording.to_str().unwrap(), "--out", out.to_str().unwrap()];
        host(&[&eval[..], &files].concat())
    };
    let refused = eval(&taken).found(1);
    assert!(refused.stderr.contains("is not empty"), "{refused}");
    assert!(!recording.exists(), "{refused}");
    eval(&folder.path().join("answers")).good();
    assert!(!lines(&recording).is_empty());
}

#[test]
fn configured_limit_holds_for_question_files() {
    let eval = ["eval", "--questions", "demo", "--device", "cpu", "--json"];
    let limit = ["--set", "question.eval_limit=2"];
    let evaluated = host(&[&eval[..], &limit].concat()).good().json();
    let grades = evaluated[0]["grades"].as_object().unwrap();
    assert_eq!(grades.values().map(|grade| grade.as_u64().unwrap()).sum::<u64>(), 2, "{grades:?}");
}

//! Arms of a training, compared.

use std::fs;
use std::path::Path;

use regex::Regex;
use serde_json::Value;

use crate::host::{Finished, command, host, run_dir, short_run, signal_when};
use crate::transcript::{Transcript, normalise, without_figures};

const SMALL: [&str; 8] = [
    "--steps",
    "1",
    "--set",
    "question.prompts_per_step=2",
    "--set",
    "question.eval_limit=16",
    "--set",
    "eval.answers.batch=16",
];

fn comparison(out: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(out.join("comparison.json")).unwrap()).unwrap()
}

/// What a comparison printed, without figures and verdicts.
fn figures_masked(compared: &Finished) -> String {
    compared.without_figures().masked("(?m)^(\\w+ against \\w+): .*", "${1}: [VERDICT]").stdout
}

#[test]
fn compare_pairs_seeds_and_resumes() {
    let mut transcript = Transcript::default();
    let out = run_dir("compared");
    let folder = out.to_str().unwrap();
    let arms = [
        "compare",
        "--out",
        folder,
        "--plugin",
        "first.wasm",
        "--plugin",
        "min.wasm",
        "--seeds",
        "2",
    ];
    let first_summary = out.join("first/seed-42/summary.json");
    let stopped =
        signal_when("-INT", &[&arms[..], &SMALL].concat(), || first_summary.exists()).good();
    let stopped = stopped.without_figures().stderr;
    transcript.add_text("interrupted", stopped.lines().last().unwrap());
    assert!(!out.join("min/seed-43/summary.json").exists());
    let of_first = fs::read_to_string(&first_summary).unwrap();

    transcript.add_failure(&host(&[&arms[..], &SMALL].concat()));
    let resumed = host(&["compare", "--out", folder, "--resume"]).good();
    assert_eq!(
        fs::read_to_string(&first_summary).unwrap(),
        of_first,
        "what was finished is left alone"
    );
    transcript.add_text("resumed", &figures_masked(&resumed));
    let arms = comparison(&out)["arms"].as_array().unwrap().clone();
    let figure = |arm: &Value, name: &str| -> Option<Vec<f64>> {
        let spread =
            arm["figures"].as_array().unwrap().iter().find(|spread| spread["figure"] == name)?;
        Some(serde_json::from_value(spread["values"].clone()).unwrap())
    };
    let accuracy = |arm: &Value| figure(arm, "accuracy").unwrap();
    assert_eq!((arms[0]["name"].as_str(), arms[1]["name"].as_str()), (Some("first"), Some("min")));
    for arm in &arms {
        let of_run = |seed: u64| {
            let path =
                out.join(arm["name"].as_str().unwrap()).join(format!("seed-{seed}/summary.json"));
            let summary: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
            assert_eq!((summary["seed"].as_u64(), &summary["rule"]), (Some(seed), &arm["name"]));
            summary["after"]["accuracy"].as_f64().unwrap()
        };
        assert_eq!(accuracy(arm), [of_run(42), of_run(43)]);
        assert!(figure(arm, "queries_per_step.count").unwrap().iter().all(|counts| *counts > 0.0));
        assert_eq!(figure(arm, "queries_per_step.nli").unwrap(), [0.0, 0.0]);
        assert_eq!(figure(arm, "cost_per_step").unwrap(), [0.0, 0.0]);
    }

    let page = fs::read_to_string(out.join("comparison.html")).unwrap();
    let elements = Regex::new("(?s)<(h[1-3]|figcaption)[^>]*>(.*?)</(h[1-3]|figcaption)>").unwrap();
    let tags = Regex::new("<[^>]*>").unwrap();
    let mut headings = String::new();
    for element in elements.captures_iter(&page) {
        headings += &format!("{}\n", tags.replace_all(&element[2], " ").trim());
    }
    transcript.add_text("comparison.html", &without_figures(&headings));

    // A rule that was built anew would be another arm.
    let manifest = out.join("min/seed-42/manifest.json");
    let (as_trained, mut other): (_, Value) = {
        let text = fs::read_to_string(&manifest).unwrap();
        (text.clone(), serde_json::from_str(&text).unwrap())
    };
    other["plugin"] = "another".into();
    fs::write(&manifest, other.to_string()).unwrap();
    let resume = ["compare", "--out", folder, "--resume", "--seeds", "3", "--json"];
    transcript.add_failure(&host(&resume));
    assert!(!out.join("first/seed-44").exists(), "it is said before anything is trained");

    fs::write(&manifest, as_trained).unwrap();
    let report = host(&["report", folder]).found(1).stderr;
    assert!(report.contains("holds a comparison; name one of its runs, such as"), "{report}");

    let more = host(&resume).good().json();
    assert_eq!(more["seeds"], serde_json::json!([42, 43, 44]));
    assert_eq!(accuracy(&more["arms"][1])[..2], accuracy(&arms[1]));
    insta::assert_snapshot!(transcript);
}

#[test]
fn incomparable_arms_are_rejected_before_training() {
    let mut transcript = Transcript::default();
    let out = run_dir("not-compared");
    let other = out.with_extension("toml");
    fs::create_dir_all(out.parent().unwrap()).unwrap();
    fs::write(&other, "[question]\neval_limit = 3\n").unwrap();
    let (folder, other) = (out.to_str().unwrap(), other.to_str().unwrap());
    let compare = |more: &[&str]| host(&[&["compare", "--out", folder], more].concat());
    let same = out.with_extension("same.toml");
    fs::write(&same, "[rule]\nplugin = \"first.wasm\"\n").unwrap();
    transcript.add_failure(&compare(&[]));
    transcript.add_failure(&compare(&["--arm", same.to_str().unwrap()]));
    transcript.add_failure(&compare(&["--plugin", "first.wasm", "--plugin", "first"]));
    transcript.add_failure(&compare(&["--plugin", "first.wasm", "--plugin", "frist.wasm"]));
    let raw = out.with_file_name("raw.toml");
    fs::write(&raw, "[run]\nsteps = 1\n").unwrap();
    transcript.add_failure(&compare(&["--arm", raw.to_str().unwrap()]));
    transcript.add_failure(&compare(&["--arm", other]));
    transcript.add_usage_error(&compare(&["--plugin", "min.wasm", "--seeds", "0"]));
    let demo = out.with_file_name("demo.json");
    fs::write(&demo, r#"[{"question": "Who?", "answers": "Orla Venn"}]"#).unwrap();
    let arms = ["--plugin", "first.wasm", "--plugin", "min.wasm", "--eval"];
    let mistyped = compare(&[&arms[..], &["nowhere.json"]].concat()).found(1);
    assert!(mistyped.stderr.contains("nowhere.json"), "{mistyped}");
    let equal = compare(&[&arms[..], &["demo", demo.to_str().unwrap()]].concat()).found(1);
    assert!(equal.stderr.contains("two of the question files are called demo"), "{equal}");
    assert!(!out.exists());
    transcript.add_failure(&compare(&["--resume"]));
    insta::assert_snapshot!(transcript);
}

/// A4 in the paper: the arm's own questions, although `--set` or `--questions` names others for
/// all.
#[test]
fn arm_file_overrides_common_settings() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    host(&["demo", "world", &path("world")]).good();
    let all = fs::read_to_string(path("world/train.json")).unwrap();
    let all: Vec<Value> = serde_json::from_str(&all).unwrap();
    for (name, questions) in [("zone.json", &all[..8]), ("pool.json", &all[..16])] {
        fs::write(path(name), serde_json::to_string(questions).unwrap()).unwrap();
    }
    fs::write(path("a4.toml"), format!("[question]\ntrain = {:?}\n", path("pool.json"))).unwrap();
    fs::write(path("a1.toml"), "[reward]\nlambda_corver = 0.0\n").unwrap();
    let (zone, a1, a4, out) = (path("zone.json"), path("a1.toml"), path("a4.toml"), path("out"));
    let arms = [
        "compare",
        "--config",
        "demo",
        "--questions",
        &zone,
        "--arm",
        &a1,
        &a4,
        "--seeds",
        "1",
        "--out",
        &out,
    ];
    let eval = path("world/eval.json");
    let sets = ["--eval", &eval, "demo"];
    let compared = host(&[&arms[..], &SMALL, &sets].concat()).good();

    let train = |arm: &str| -> String {
        let config =
            fs::read_to_string(folder.path().join("out").join(arm).join("config.toml")).unwrap();
        toml::from_str::<Value>(&config).unwrap()["question"]["train"].as_str().unwrap().to_owned()
    };
    assert_eq!((train("base"), train("a1"), train("a4")), (zone.clone(), zone, path("pool.json")));

    insta::assert_snapshot!(normalise(&figures_masked(&compared)));
    let comparison = comparison(&folder.path().join("out"));
    assert_eq!(comparison["arms"][1]["relative_time_to_a1"], 1.0);
    let sets = comparison["sets"].as_array().unwrap();
    let named: Vec<&str> = sets.iter().map(|set| set["name"].as_str().unwrap()).collect();
    assert_eq!(named, ["eval", "demo"]);
    let [of_file, of_demo] = [0, 1].map(|set| sets[set]["policies"].as_array().unwrap());
    let policies: Vec<&str> = of_file.iter().map(|policy| policy[0].as_str().unwrap()).collect();
    assert_eq!(policies, ["raw", "base", "a1", "a4"]);
    // The same questions, from a file and from the demo.
    for (one, other) in of_file.iter().zip(of_demo) {
        assert_eq!(one[1][0]["grades"], other[1][0]["grades"]);
    }
}

#[test]
fn arm_in_another_language_is_refused() {
    let out = run_dir("not-compared-languages");
    let german = out.with_file_name("german.toml");
    fs::create_dir_all(out.parent().unwrap()).unwrap();
    fs::write(&german, "[reward]\nlanguage = \"de\"\nsentences = \"prose\"\n").unwrap();
    let (out, german) = (out.to_str().unwrap(), german.to_str().unwrap());
    let refused = host(&["compare", "--out", out, "--arm", german]).found(1);
    assert!(refused.stderr.contains("german has another `reward.language` than base"), "{refused}");
}

/// The adapter that training continues from is the untrained policy, and all questions of a set are
/// answered: `question.eval_limit` is for the evaluation of the training. A resumed comparison has
/// the same sets.
#[test]
fn adapter_of_cold_start_is_evaluated_as_untrained_policy() {
    let start = run_dir("start-of-arms");
    short_run(&start, 2, &[]).good();
    let adapter = start.join("checkpoints/step-000002");
    let out = run_dir("compared-from-adapter");
    let world = run_dir("compared-from-adapter.world");
    host(&["demo", "world", world.to_str().unwrap()]).good();
    let all = fs::read_to_string(world.join("eval.json")).unwrap();
    let all: Vec<Value> = serde_json::from_str(&all).unwrap();
    let few = world.join("few.json");
    fs::write(&few, serde_json::to_string(&all[..20]).unwrap()).unwrap();
    let (few, folder) = (few.to_str().unwrap(), out.to_str().unwrap());
    let from = format!("policy.adapter={}", adapter.display());
    let common = ["--config", "demo", "--device", "cpu"];
    let arms = ["--plugin", "first.wasm", "--plugin", "min.wasm", "--seeds", "1", "--set", &from];
    let compare = ["compare", "--out", folder, "--eval", "few.json"];
    let mut in_world = command(&[&compare[..], &common, &arms, &SMALL].concat());
    let compared = in_world.current_dir(&world).output().unwrap();
    assert!(compared.status.success(), "{}", String::from_utf8_lossy(&compared.stderr));

    let evaluate = ["eval", "--json", "--questions", few, "--adapter", adapter.to_str().unwrap()];
    let expected = host(&[&evaluate[..], &common].concat()).good().json();
    let grades = expected[0]["grades"].as_object().unwrap();
    assert_eq!(grades.values().map(|grade| grade.as_u64().unwrap()).sum::<u64>(), 20);
    let policies = comparison(&out)["sets"][0]["policies"].clone();
    assert_eq!(policies[0][0], "raw", "{policies}");
    assert_eq!(policies[0][1][0]["grades"], expected[0]["grades"], "{policies}");
    assert!(!out.join("first/seed-42/sets/raw.few.jsonl").exists());

    let resume = ["compare", "--out", folder, "--resume"];
    host(&resume).good();
    let resumed = comparison(&out)["sets"][0]["policies"].clone();
    assert_eq!(resumed[1][1][0]["grades"], policies[1][1][0]["grades"], "{resumed}");
    let other = host(&[&resume[..], &["--eval", "demo"]].concat()).found(1);
    assert!(other.stderr.contains("have answered other question sets"), "{other}");
    let moved = run_dir("compared-from-adapter.moved");
    fs::rename(&world, &moved).unwrap();
    host(&[&resume[..], &["--eval", moved.join("few.json").to_str().unwrap()]].concat()).good();
}

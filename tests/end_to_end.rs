//! The built binary, driven as a person would drive it.

mod golden;
mod host;

use std::fs;
use std::path::{Path, PathBuf};

use host::{Finished, host, lines, run_dir};
use serde_json::{Map, Value, json};

/// A demo run small enough for a test.
const SHORT: [&str; 10] = [
    "train",
    "--device",
    "cpu",
    "--set",
    "question.prompts_per_step=2",
    "--set",
    "question.eval_limit=16",
    "--set",
    "checkpoint.every=2",
    "--json",
];

fn short_run(out: &Path, steps: usize, more: &[&str]) -> Finished {
    let steps = steps.to_string();
    let place = ["--out", out.to_str().unwrap(), "--steps", &steps];
    host(&[&SHORT[..], &place, more].concat())
}

#[test]
fn training_on_the_demo_leaves_a_finished_run() {
    let out = run_dir("finished");
    let finished = short_run(&out, 2, &[]).good();
    let summary: Map<String, Value> = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(summary["plugin"], "first");
    assert_eq!(summary["steps"], 2);
    for name in ["accuracy", "supported_rate", "refusal_rate", "mean_length"] {
        for when in ["before", "after"] {
            let value = summary[&format!("{name}_{when}")].as_f64().unwrap();
            assert!(value >= 0.0 && (name == "mean_length" || value <= 1.0), "{name}_{when} = {value}");
        }
    }
    for name in ["seconds_total", "seconds_per_step", "reward_seconds_per_step"] {
        assert!(summary[name].as_f64().unwrap() > 0.0, "{name}");
    }
    assert_eq!(
        serde_json::from_str::<Value>(&fs::read_to_string(out.join("summary.json")).unwrap()).unwrap(),
        json!(summary)
    );

    let metrics = lines(&out.join("metrics.jsonl"));
    assert_eq!(metrics.len(), 2);
    for name in ["loss", "reward", "reward_std", "grad_norm", "kl", "completions/mean_length", "rewards/first/mean"] {
        assert!(metrics[0][name].is_number(), "no {name} in {}", metrics[0]);
    }
    assert_eq!(lines(&out.join("traces.jsonl")).len(), 2 * 2 * 16);
    assert!(finished.stderr.contains("step   1/2") && finished.stderr.contains("step   2/2"), "{}", finished.stderr);
    let manifest: Map<String, Value> =
        serde_json::from_str(&fs::read_to_string(out.join("manifest.json")).unwrap()).unwrap();
    for what in ["plugin", "index", "extractor", "model"] {
        assert_eq!(manifest[what].as_str().unwrap().len(), 64, "{what}");
    }

    // The resolved configuration stands for itself.
    let config = out.join("config.toml");
    let again = host(&["train", "--config", config.to_str().unwrap(), "--dry-run"]).good();
    assert_eq!(again.stdout.trim(), fs::read_to_string(&config).unwrap().trim());

    // A finished run is neither overwritten nor resumed.
    short_run(&out, 2, &[]).bad("not empty");
    short_run(&out, 2, &["--resume"]).bad("has finished");
}

#[test]
fn swapping_the_rule_changes_the_rewards_and_nothing_else() {
    let verdicts = |rule: &str| {
        let out = run_dir(rule);
        short_run(&out, 1, &["--plugin", rule]).good();
        let traces = lines(&out.join("traces.jsonl"));
        let completions: Vec<Value> = traces.iter().map(|line| line["trace"]["completion"].clone()).collect();
        let verdicts: Vec<Value> = traces
            .iter()
            .flat_map(|line| line["trace"]["sentences"].as_array().unwrap())
            .map(|sentence| sentence["verdict"].clone())
            .collect();
        (completions, verdicts)
    };
    let (first, min, relcheck) = (verdicts("first.wasm"), verdicts("min.wasm"), verdicts("relcheck.wasm"));
    assert_eq!(first.0, min.0, "the policy and the seed are the same, so the first step samples the same completions");
    assert_eq!(first.0, relcheck.0);
    let rewards = |verdicts: &[Value]| verdicts.iter().map(|verdict| verdict["reward"].clone()).collect::<Vec<_>>();
    assert_ne!(rewards(&first.1), rewards(&min.1), "Min reads every triplet");
    let lookups = |verdicts: &[Value]| {
        verdicts.iter().filter_map(|verdict| verdict["counts"].as_array()).map(Vec::len).sum::<usize>()
    };
    assert!(lookups(&relcheck.1) > lookups(&first.1), "RelCheck looks twice where the pair is frequent");
}

/// Kills a run in the middle, resumes it, and compares it with one that nobody killed.
fn resumes_to_the_same_end(name: &str, rules: &[&str]) -> PathBuf {
    let straight = run_dir(name);
    short_run(&straight, 16, rules).good();

    let killed = run_dir(&format!("{name}-killed"));
    let place = ["--out", killed.to_str().unwrap(), "--steps", "16"];
    host::kill_when(&[&SHORT[..], &place, rules].concat(), || lines(&killed.join("metrics.jsonl")).len() >= 3);
    assert!(!killed.join("summary.json").exists(), "a run that was killed does not look finished");
    short_run(&killed, 16, &["--resume"]).good();

    let without_times = |path: &Path| {
        let mut metrics = lines(&path.join("metrics.jsonl"));
        for line in &mut metrics {
            line.as_object_mut().unwrap().retain(|name, _| !name.starts_with("seconds") && name != "step_time");
        }
        metrics
    };
    assert_eq!(without_times(&killed), without_times(&straight));
    killed
}

#[test]
fn a_killed_run_resumes_to_the_same_end() {
    let killed = resumes_to_the_same_end("straight", &[]);
    short_run(&killed, 16, &["--resume", "--plugin", "min.wasm"]).bad("finished");
}

#[test]
fn a_killed_run_of_several_rules_and_a_judge_resumes_to_the_same_end() {
    let rules = ["--plugin", "first.wasm:0.7", "--plugin", "min.wasm:0.3", "--judge", "token-f1.wasm"];
    let killed = resumes_to_the_same_end("several", &rules);
    for channel in ["first", "min", "judge"] {
        let named = format!("rewards/{channel}/mean");
        assert!(lines(&killed.join("metrics.jsonl")).iter().all(|line| line[&named].is_number()), "{named}");
    }
}

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
    let questions = file("questions.json", r#"[{"question": "who?", "answers": "me"}, {"answers": "nobody asked"}]"#);
    let truncated = folder.path().join("index");
    host::small_index(&truncated);
    let stream = fs::read(truncated.join("tokenized.0")).unwrap();
    fs::write(truncated.join("tokenized.0"), &stream[..stream.len() / 2]).unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();

    let plugin = |path: &str| host(&["train", "--plugin", path]);
    plugin("nowhere.wasm").bad("there is no plugin nowhere.wasm");
    plugin(&text(&text_plugin)).bad("not.wasm");
    host(&["train", "--config", &text(&config)]).bad("did you mean `rollout.temperature`?");
    host(&["train", "--config", "nowhere.toml"]).bad("nowhere.toml");
    host(&["train", "--set", "run.steps"]).bad("section.key=value");
    host(&["train", "--set", "run.steps=many"]).bad("run.steps");
    host(&["train", "--set", "checkpoint.every=0"]).bad("checkpoint.every");
    host(&["train", "--set", &format!("question.train={}", text(&questions))]).bad("record 2");
    host(&["train", "--set", &format!("corpus.index={}", text(&truncated))]).bad("tokenized.0");
    host(&["index", "verify", &text(&truncated)]).bad("tokenized.0");
    host(&["train", "--set", "policy.model=nowhere"]).bad("nowhere");
    host(&["train", "--set", "extract.bundle=nowhere"]).bad("nowhere");
    host(&["train", "--set", "rule.settings.tires=1"]).bad("tires");
    host(&["train", "--out", &format!("{}/run", text(&config))]).bad("typo.toml");
    host(&["train", "--steps", "many"]).usage("many");
    if !host::has_gpu() {
        host(&["train", "--device", "cuda:0"]).bad("cuda:0");
    }
}

#[test]
fn the_doctor_fails_where_a_needed_part_does() {
    let findings = host(&["doctor", "--json"]).good().json();
    let names: Vec<&str> = findings.as_array().unwrap().iter().map(|f| f["what"].as_str().unwrap()).collect();
    assert_eq!(names, ["libtorch", "ONNX Runtime", "rules", "cache", "GPU"]);
    host::host_with_runtime("/nowhere/libonnxruntime.so", &["doctor"]).bad("1 needed part");
    host::host_with_runtime("/nowhere/libonnxruntime.so", &["train"]).bad("/nowhere/libonnxruntime.so");
}

#[test]
fn an_index_is_built_counted_and_verified() {
    let folder = tempfile::tempdir().unwrap();
    let index = folder.path().join("index");
    host::small_index(&index);
    let path = index.to_str().unwrap();
    let count = host(&["index", "count", "Paris AND France", "--index", path, "--json"]).good().json();
    assert_eq!(count["count"], 2);
    assert_eq!(host(&["index", "count", "Paris AND Peru", "--index", path, "--json"]).good().json()["count"], 0);
    let shown = host(&["index", "count", "Paris AND France", "--index", path, "--show", "1"]).good();
    assert!(shown.stdout.contains("The city of **Paris** lies in **France**."), "{}", shown.stdout);
    assert!(shown.stdout.contains("articles.jsonl, line 2"), "{}", shown.stdout);
    let shown = host(&["index", "count", "Paris AND France", "--index", path, "--show", "9", "--json"]).good().json();
    let passages = shown["passages"].as_array().unwrap();
    assert_eq!(passages.len(), 1, "both matches are in it");
    assert_eq!(passages[0]["metadata"]["linenum"], 1);
    let marked = passages[0]["spans"].as_array().unwrap().iter().filter(|span| span["matched"] == true);
    assert!(
        marked.clone().count() >= 2 && marked.clone().all(|span| span["text"] == "Paris" || span["text"] == "France")
    );
    let info = host(&["index", "info", path, "--json"]).good().json();
    assert_eq!(info["documents"], 3);
    host(&["index", "verify", path, "--full"]).good();
    // The folder is taken now.
    host::small_index_again(&index).bad("index");
}

#[test]
fn counts_come_from_several_indexes_and_from_servers() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| {
        let index = folder.path().join(name);
        host::small_index(&index);
        index.to_str().unwrap().to_owned()
    });
    let both = ["--index", &first, "--index", &second];
    let count = |more: &[&str]| host(&[&["index", "count", "Paris AND France", "--json"], &both[..], more].concat());
    assert_eq!(count(&[]).good().json()["count"], 4);
    assert_eq!(count(&["--show", "9"]).good().json()["passages"].as_array().unwrap().len(), 2);

    // Nobody listens there.
    let server = "http://127.0.0.1:1/#wiki";
    count(&["--index", server, "--show", "9"]).bad("has no text to --show");
    count(&["--index", "http://127.0.0.1:1/"]).bad("http://127.0.0.1:1/#NAME");
    let list = format!("corpus.index=[{first:?}, {server:?}]");
    let run = run_dir("nobody-counts");
    let impatient = ["--set", &list, "--set", "corpus.remote.patience_s=0.2"];
    short_run(&run, 1, &impatient).bad("gave no answer");
    let manifest = fs::read_to_string(run.join("manifest.json")).unwrap();
    assert!(manifest.contains("wiki at http://127.0.0.1:1/, which nobody has hashed"), "{manifest}");
}

#[test]
fn a_run_outlives_the_server_that_counts_for_it() {
    let mut server = host::Server::start(&["--name", "demo-world"], "127.0.0.1:0");
    let count = host(&["index", "count", "Philadelphia AND Flyers", "--index", &server.url, "--json"]).good().json();
    assert_eq!(count["count"], 0);
    let window = format!("corpus.max_diff_tokens={}", corver_demo::WINDOW);
    let local = run_dir("counted-here");
    short_run(&local, 4, &[]).good();

    let out = run_dir("counted-elsewhere");
    let source = format!("corpus.index={}", server.url);
    let remote = [
        "--set",
        &source,
        "--set",
        &window,
        "--set",
        "corpus.remote.cache=false",
        "--set",
        "corpus.remote.patience_s=1",
    ];
    // The server goes away after the second step: the run stops with an error and its checkpoint.
    std::thread::scope(|scope| {
        let run = scope.spawn(|| short_run(&out, 4, &remote));
        while lines(&out.join("metrics.jsonl")).len() < 2 && !run.is_finished() {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        server.stop();
        run.join().unwrap().bad("gave no answer");
    });
    // It comes back, and the run goes on to where it would have got with an index of its own.
    let _server = host::Server::start(&["--name", "demo-world"], &server.address);
    short_run(&out, 4, &[&remote[..], &["--resume"]].concat()).good();
    let rewards = |run: &Path| -> Vec<Value> {
        lines(&run.join("metrics.jsonl")).iter().map(|line| line["reward"].clone()).collect()
    };
    assert_eq!(rewards(&out), rewards(&local));
}

#[test]
fn completions_are_scored_with_their_own_triplets() {
    let folder = tempfile::tempdir().unwrap();
    let index = folder.path().join("index");
    host::small_index(&index);
    let sentence = "Paris is the capital of France.";
    let line = json!({
        "question": "What is the capital of France?",
        "answers": "Paris",
        "completion": format!("<think>{sentence} Nobody doubts that, nobody.</think><answer>Paris</answer>"),
        "triplets": [[sentence, [["Paris", "capital of", "France"]]], ["Nobody doubts that, nobody.", []], ["Paris", []]],
    });
    let file = folder.path().join("completions.jsonl");
    fs::write(&file, line.to_string()).unwrap();
    let set = format!("corpus.index={}", index.display());
    let trace = host(&["score", file.to_str().unwrap(), "--set", &set, "--json"]).good().json();
    let verdict = &trace["sentences"][0]["verdict"];
    assert_eq!(verdict["count"], 2);
    assert!((verdict["reward"].as_f64().unwrap() + 0.1).abs() < 1e-6, "one to four occurrences cost 0.1: {verdict}");
    assert_eq!(trace["sentences"][1]["verdict"]["reward"], Value::Null);
    assert_eq!(trace["response"]["judge"]["label"], "GOOD");
    let shown = host(&["score", file.to_str().unwrap(), "--set", &set]).good();
    assert!(shown.stdout.contains("Paris AND France = 2"), "{}", shown.stdout);
}

#[test]
fn the_extractor_reads_the_demos_sentences() {
    let folder = tempfile::tempdir().unwrap();
    host(&["demo", "world", folder.path().join("world").to_str().unwrap()]).good();
    let article = &lines(&folder.path().join("world/articles.jsonl"))[0];
    let sentences = article["text"].as_str().unwrap().replace(". ", ".\n");
    let file = folder.path().join("sentences.txt");
    fs::write(&file, &sentences).unwrap();
    let extracted = host(&["extract", file.to_str().unwrap(), "--json"]).good();
    let read: Vec<Value> = extracted.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(read.len(), sentences.lines().count());
    let mut found = 0;
    for line in &read {
        for triplet in line["triplets"].as_array().unwrap() {
            found += 1;
            for end in ["head", "tail"] {
                let name = triplet[end].as_str().unwrap();
                assert!(line["sentence"].as_str().unwrap().contains(name), "{name:?} is not in {line}");
            }
        }
    }
    assert!(found > 0, "no fact in {sentences:?}");
}

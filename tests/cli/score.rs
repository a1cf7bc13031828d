//! Completions are scored, sentences are read.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::host::{host, lines, small_index};
use crate::transcript::Transcript;

#[test]
fn completions_are_scored_with_their_own_triplets() {
    let folder = tempfile::tempdir().unwrap();
    let index = folder.path().join("index");
    small_index(&index);
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
    assert!(
        (verdict["reward"].as_f64().unwrap() + 0.1).abs() < 1e-6,
        "one to four occurrences cost 0.1: {verdict}"
    );
    assert_eq!(trace["sentences"][1]["verdict"]["reward"], Value::Null);
    assert_eq!(trace["response"]["judge"]["label"], "GOOD");
    let shown = host(&["score", file.to_str().unwrap(), "--set", &set]).good();
    let mut transcript = Transcript::default();
    transcript.add(&shown);
    let timed = host(&["-v", "score", file.to_str().unwrap(), "--set", &set]).good().stderr;
    for stage in ["split", "extract", "score_sentences", "count", "grade_responses"] {
        assert!(
            timed.lines().any(|line| line.contains(stage) && line.contains("time.busy")),
            "no {stage} in\n{timed}"
        );
    }

    // What is printed adds up, weights and what is left out included.
    for more in
        [&[][..], &["--set", "reward.lambda_judge=0.5"], &["--set", "reward.lambda_judge=0"]]
    {
        let args = [&["score", file.to_str().unwrap(), "--set", &set], more].concat();
        let trace = host(&[&args[..], &["--json"]].concat()).good().json();
        let parts = trace["return_parts"].as_object().unwrap();
        let sum: f64 = parts.values().map(|part| part.as_f64().unwrap()).sum();
        assert!(parts["sentences"].as_f64().unwrap() < 0.0, "{trace}");
        assert!((sum - trace["mean_return"].as_f64().unwrap()).abs() < 1e-6, "{trace}");
        transcript.add(&host(&args).good());
    }
    insta::assert_snapshot!(transcript);
}

#[test]
fn extract_reads_demo_sentences() {
    let folder = tempfile::tempdir().unwrap();
    host(&["demo", "world", folder.path().join("world").to_str().unwrap()]).good();
    let article = &lines(&folder.path().join("world/articles.jsonl"))[0];
    let sentences = article["text"].as_str().unwrap().replace(". ", ".\n");
    let file = folder.path().join("sentences.txt");
    fs::write(&file, &sentences).unwrap();
    let extracted = host(&["extract", file.to_str().unwrap(), "--json"]).good();
    let read: Vec<Value> =
        extracted.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(read.len(), sentences.lines().count());
    let mut found = 0;
    for line in &read {
        for triplet in line["triplets"].as_array().unwrap() {
            found += 1;
            for end in ["head", "tail"] {
                let name = triplet[end].as_str().unwrap();
                assert!(
                    line["sentence"].as_str().unwrap().contains(name),
                    "{name:?} is not in {line}"
                );
            }
        }
    }
    assert!(found > 0, "no fact in {sentences:?}");

    let raw = host(&["extract", file.to_str().unwrap(), "--json", "--raw", "--stats"]).good();
    let raw: Vec<Value> =
        raw.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (stats, raw) = raw.split_last().unwrap();
    assert_eq!(stats["sentences"], read.len());
    assert_eq!(
        stats["hits"].as_u64().unwrap() + stats["decoded"].as_u64().unwrap(),
        read.len() as u64
    );
    for (with, without) in raw.iter().zip(&read) {
        assert_eq!(
            (&with["sentence"], &with["triplets"]),
            (&without["sentence"], &without["triplets"])
        );
        let head = with["triplets"][0]["head"].as_str().unwrap_or_default();
        assert!(with["reply"].as_str().unwrap().contains(head), "{with}");
    }
}

#[test]
fn extract_eval_measures_gold_sentences() {
    let mut transcript = Transcript::default();
    let folder = tempfile::tempdir().unwrap();
    let gold = folder.path().join("gold.jsonl");
    let fact = r#"{"sentence": "Silent Brava was directed by Dora Fenn.", "triplets": [["Silent Brava", "was directed by", "Dora Fenn"]]}"#;
    let other = r#"{"sentence": "Dora Fenn married Garo Lisk.", "triplets": [["Dora Fenn", "was the wife of", "Garo Lisk"]]}"#;
    fs::write(&gold, format!("{fact}\n{other}\n")).unwrap();
    let args = ["extract", "--extractor", "demo", "--eval", gold.to_str().unwrap()];
    let measured = host(&[&args[..], &["--json"]].concat()).good();
    let quality: Value = serde_json::from_str(measured.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(
        quality["quality"]["triplets"],
        serde_json::json!({"right": 1, "found": 2, "gold": 2})
    );
    assert_eq!(quality["quality"]["pairs"], serde_json::json!({"right": 2, "found": 2, "gold": 2}));
    transcript.add(&host(&args).good());

    transcript.add_failure(&host(&["extract", "--eval", gold.to_str().unwrap()]));
    transcript.add_failure(&host(&["extract", "--prompt", "prompt.txt"]));

    fs::write(&gold, "{\"sentence\": 1}\n").unwrap();
    transcript.add_failure(&host(&args));
    insta::assert_snapshot!(transcript);
}

#[test]
fn pack_of_counts_replaces_the_index() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let file = path("completions.jsonl");
    let said = "<think>Zusturk Giseth was born in Mount Kogrix.</think><answer>x</answer>";
    let line = json!({"question": "Where?", "answers": ["x"], "completion": said});
    fs::write(&file, format!("{line}\n")).unwrap();
    let score = |more: &[&str]| host(&[&["score", &file, "--json"], more].concat());
    let recording = path("recording.jsonl");
    let scored = score(&["--record", &recording]).good().json();
    let pack = path("pack");
    let packed = host(&["index", "pack", &recording, "--out", &pack, "--json"]).good().json();
    assert_eq!(packed["queries"], 1);
    let set = format!("corpus.pack={pack}");
    let abstain = ["--config", "demo", "--set", &set, "--set", "corpus.pack_misses=abstain"];
    assert_eq!(score(&abstain).good().json(), scored);
    assert_eq!(score(&["--config", "demo", "--set", &set]).good().json(), scored);

    // Another question: counted in the index, or not at all.
    let said = "<think>Zusturk Giseth was born in Old Riavuck.</think><answer>x</answer>";
    let line = json!({"question": "Where?", "answers": ["x"], "completion": said});
    fs::write(&file, format!("{line}\n")).unwrap();
    let count = |scored: &Value| scored["sentences"][0]["verdict"]["count"].clone();
    assert_eq!(count(&score(&["--config", "demo", "--set", &set]).good().json()), json!(0));
    assert_eq!(count(&score(&abstain).good().json()), Value::Null);

    let refused = score(&["--config", "demo", "--set", &set, "--set", "corpus.mode=span"]);
    assert!(refused.stderr.contains("was counted with `corpus.max_diff_tokens`"), "{refused}");
    let other = path("other");
    small_index(Path::new(&other));
    let refused = score(&["--set", &set, "--index", &other, "--set", "extract.kind=names"]);
    assert!(refused.stderr.contains("has the counts of another index"), "{refused}");
    let named = ["--set", &set, "--set", "corpus.pack_misses=abstain", "--index", &other];
    assert!(score(&named).stderr.contains("no index is used"));
    fs::write(&pack, "no pack").unwrap();
    assert!(score(&abstain).stderr.contains("the pack"), "{}", score(&abstain));
}

#[test]
fn names_replace_the_extractor() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("completions.jsonl");
    let said = "<think>He was born in Mount Kogrix. It was cold.</think><answer>x</answer>";
    let line =
        json!({"question": "Where was Zusturk Giseth born?", "answers": [], "completion": said});
    fs::write(&path, format!("{line}\n")).unwrap();
    let file = path.to_str().unwrap();
    let names = ["--set", "extract.kind=names"];
    let scored = host(&[&["score", file, "--json"], &names[..]].concat()).good().json();
    let triplet = json!({"head": "Zusturk Giseth", "relation": "", "tail": "Mount Kogrix"});
    assert_eq!(scored["sentences"][0]["triplets"], json!([triplet]));
    assert!(scored["sentences"][0]["verdict"]["count"].as_u64().unwrap() > 0, "{scored}");
    let refused = host(&[&["score", file, "--extractor", "own"], &names[..]].concat());
    assert!(refused.stderr.contains("uses no model"), "{refused}");
}

/// A file with one completion and its triplets.
fn one_completion(folder: &Path) -> String {
    let sentence = "Old Riavuck lies in Denwick.";
    let line = json!({
        "question": "Where does Old Riavuck lie?",
        "answers": "Denwick",
        "completion": format!("<think>{sentence}</think><answer>Denwick</answer>"),
        "triplets": [[sentence, []], ["Denwick", []]],
    });
    let file = folder.join("completions.jsonl");
    fs::write(&file, line.to_string()).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn refused_settings_leave_no_recording() {
    let folder = tempfile::tempdir().unwrap();
    let file = one_completion(folder.path());
    let counts = folder.path().join("counts.jsonl");
    for command in ["score", "explain"] {
        let args = [command, &file, "--record", counts.to_str().unwrap()];
        let refused = host(&[&args[..], &["--set", "rule.settings.tires=1"]].concat()).found(1);
        assert!(refused.stderr.contains("refuses its settings"), "{refused}");
        assert!(!counts.exists(), "{refused}");
        host(&args).good();
        fs::remove_file(&counts).unwrap();
    }
}

#[test]
fn explain_refuses_step_and_completion_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = one_completion(folder.path());
    for flag in ["--step", "--completion"] {
        let refused = host(&["explain", &file, flag, "1"]).found(1);
        assert!(refused.stderr.contains("--step and --completion are for a run"), "{refused}");
    }
}

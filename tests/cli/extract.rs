//! `extract train`: an extractor that learns from labelled sentences.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::host::{Finished, host, lines};
use crate::transcript::Transcript;

const ASSETS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../demo/assets");

/// Copies the demo's extractor, with a chat template, as a model to train.
fn student(folder: &Path) -> PathBuf {
    let student = folder.join("student");
    fs::create_dir_all(&student).unwrap();
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        fs::copy(format!("{ASSETS}/extractor/{name}"), student.join(name)).unwrap();
    }
    let template = "{% for message in messages %}{{ message.content }}{% endfor %}\n";
    let config = json!({"chat_template": template, "eos_token": "<|endoftext|>"});
    fs::write(student.join("tokenizer_config.json"), config.to_string()).unwrap();
    student
}

/// Labels sentences of the demo's articles by its extractor, with head and tail exchanged: the student
/// knows no such triplet.
fn swapped_labels(folder: &Path, number: usize) -> PathBuf {
    host(&["demo", "world", folder.join("world").to_str().unwrap()]).good();
    let mut sentences = String::new();
    for article in lines(&folder.join("world/articles.jsonl")).iter().take(number) {
        let text = article["text"].as_str().unwrap();
        // The first sentence only announces the article.
        sentences += text.split_inclusive(". ").nth(1).unwrap().trim();
        sentences.push('\n');
    }
    let [file, labels] = ["sentences.txt", "labels.jsonl"].map(|name| folder.join(name));
    fs::write(&file, sentences).unwrap();
    let found = host(&["extract", file.to_str().unwrap(), "--extractor", "demo", "--json"]).good();
    let mut swapped = String::new();
    for line in found.stdout.lines() {
        let mut label: Value = serde_json::from_str(line).unwrap();
        for triplet in label["triplets"].as_array_mut().unwrap() {
            let (head, tail) = (triplet["head"].take(), triplet["tail"].take());
            (triplet["head"], triplet["tail"]) = (tail, head);
        }
        swapped += &format!("{label}\n");
    }
    fs::write(&labels, swapped).unwrap();
    labels
}

#[test]
fn trained_extractor_learns_labels_and_resumes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (student, labels) = (student(folder), swapped_labels(folder, 240));
    let prompt = folder.join("prompt.txt");
    fs::write(&prompt, "The triplets of a sentence:\n{sentence}\n").unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let train_model = |model: &str, out: &str, more: &[&str]| -> Finished {
        let (out, labels) = (path(out), labels.to_str().unwrap());
        let prompt = prompt.to_str().unwrap();
        let args = ["extract", "train", labels, "--prompt", prompt, "--out", &out, "--json"];
        let settings = ["--set", "sft.epochs=4", "--set", "sft.learning_rate=0.005"];
        let sizes = ["--set", "sft.per_step=16", "--set", "update.lora.r=16"];
        let run = ["--model", model, "--device", "cpu", "--set", "checkpoint.every=10"];
        host(&[&args[..], &settings, &sizes, &run, more].concat())
    };
    let train = |out: &str, more: &[&str]| train_model(student.to_str().unwrap(), out, more);

    let trained = train("whole", &[]).good().json();
    let right = trained["quality"]["pairs"]["right"].as_u64().unwrap();
    let labelled = trained["quality"]["pairs"]["gold"].as_u64().unwrap();
    let learned = trained["summary"]["demonstrations"].as_u64().unwrap();
    let held_out = trained["held_out"].as_u64().unwrap();
    assert_eq!(held_out, (learned + held_out).div_ceil(10));
    assert!(right * 2 > labelled, "{trained}");
    let (extractor, gold) = (path("whole/extractor"), path("whole/held_out.jsonl"));
    let evaluate = |extractor: &str| {
        let args = ["extract", "--extractor", extractor, "--eval", &gold, "--json"];
        let printed = host(&args).good().stdout;
        let last: Value = serde_json::from_str(printed.lines().last().unwrap()).unwrap();
        last["quality"].clone()
    };
    assert_eq!(evaluate(&extractor), trained["quality"], "the folder has its prompt");
    assert_eq!(evaluate("demo")["pairs"]["right"], 0, "the student knew none of it");

    // As if it had been killed between two checkpoints.
    train("cut", &[]).good();
    let last = format!("step-{:06}", trained["summary"]["steps"].as_u64().unwrap());
    fs::remove_dir_all(folder.join("cut/run/checkpoints").join(last)).unwrap();
    fs::remove_file(folder.join("cut/run/summary.json")).unwrap();
    fs::remove_dir_all(folder.join("cut/extractor")).unwrap();
    let resumed = train("cut", &["--resume"]).good().json();
    assert_eq!(resumed["quality"], trained["quality"]);
    let weights =
        |out: &str| fs::read(folder.join(out).join("extractor/model.safetensors")).unwrap();
    assert!(weights("cut") == weights("whole"), "resumed to the same weights");

    // As if it had been killed while the weights were merged.
    fs::remove_dir_all(folder.join("cut/extractor")).unwrap();
    assert_eq!(train("cut", &["--resume"]).good().json()["quality"], trained["quality"]);
    assert!(weights("cut") == weights("whole"), "merged again");

    let mut transcript = Transcript::default();
    transcript.add_failure(&train("whole", &[]));
    transcript.add_failure(&train("cut", &["--resume", "--held-out", "3"]));
    transcript.add_failure(&train("other", &["--held-out", "240"]));
    fs::create_dir(folder.join("gpt2")).unwrap();
    fs::write(folder.join("gpt2/config.json"), r#"{"model_type": "gpt2"}"#).unwrap();
    transcript.add_failure(&train_model(&path("gpt2"), "other", &[]));
    fs::write(&prompt, "No marker.").unwrap();
    transcript.add_failure(&train("other", &[]));
    assert!(!folder.join("other").exists(), "nothing is left of it");
    insta::assert_snapshot!(transcript);
}

#[test]
fn chat_variables_reach_the_chat_template() {
    let folder = tempfile::tempdir().unwrap();
    let model = student(folder.path());
    let template = "{% if enable_thinking is false %}{{ raise_exception('no thinking') }}{% endif %}{{ messages[-1].content }}";
    fs::write(model.join("chat_template.jinja"), template).unwrap();
    let [prompt, sentences] = ["prompt.txt", "sentences.txt"].map(|name| folder.path().join(name));
    fs::write(&prompt, "The triplets of a sentence:\n{sentence}\n").unwrap();
    fs::write(&sentences, "Lima lies in Peru.\n").unwrap();
    let extract = ["extract", sentences.to_str().unwrap(), "--extractor", model.to_str().unwrap()];
    let prompted = ["--prompt", prompt.to_str().unwrap()];
    host(&[&extract[..], &prompted].concat()).good();
    let variables = ["--set", "extract.chat_variables={ enable_thinking = false }"];
    for (flags, problem) in [
        (
            [&prompted[..], &variables].concat(),
            "the chat template failed: invalid operation: no thinking",
        ),
        (variables.to_vec(), "`extract.chat_variables`: set, but `extract.prompt` is not"),
        (
            [&prompted[..], &variables, &["--no-chat"]].concat(),
            "`extract.chat_variables`: set, but `extract.chat` is false",
        ),
    ] {
        let refused = host(&[&extract[..], flags.as_slice()].concat()).found(1);
        assert!(refused.stderr.contains(problem), "{refused}");
    }
}

#[test]
fn flags_of_a_model_are_refused_with_names() {
    let folder = tempfile::tempdir().unwrap();
    let sentences = folder.path().join("sentences.txt");
    fs::write(&sentences, "Lima lies in Peru.\n").unwrap();
    let extract = ["extract", sentences.to_str().unwrap(), "--set", "extract.kind=names"];
    host(&extract).good();
    for flag in [
        &["--no-chat"][..],
        &["--max-new-tokens", "9"],
        &["--batch-size", "9"],
        &["--device", "cpu"],
    ] {
        let refused = host(&[&extract[..], flag].concat()).found(1);
        assert!(refused.stderr.contains(&format!("{} is for a model", flag[0])), "{refused}");
    }
}

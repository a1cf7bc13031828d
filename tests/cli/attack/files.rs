//! Model folders, questions, recordings, indexes and texts that others wrote.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::print_row;
use crate::host::{EXTRACTOR, host, lines, measured_host, run_dir, short_run, small_index};

const ARTICLE: &str = "{\"text\": \"The city of Paris lies in France.\"}\n";

/// Returns the demo's tokenizer after a change.
fn tokenizer(folder: &Path, change: impl Fn(&mut Value)) -> PathBuf {
    let original =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../demo/assets/policy/tokenizer.json");
    let mut tokenizer = serde_json::from_slice(&fs::read(original).unwrap()).unwrap();
    change(&mut tokenizer);
    let path = folder.join("tokenizer.json");
    fs::write(&path, tokenizer.to_string()).unwrap();
    path
}

#[test]
fn tokenizer_is_refused_before_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let articles = folder.path().join("articles.jsonl");
    fs::write(&articles, ARTICLE).unwrap();
    let index = folder.path().join("index");
    let double = json!({"type": "Replace", "pattern": {"Regex": "."}, "content": "aa"});
    let doubling = json!({"type": "Sequence", "normalizers": vec![double; 60]});
    type Change<'a> = &'a dyn Fn(&mut Value);
    let attacks: [(&str, Change<'_>); 3] = [
        ("60 normalisers that double a text", &|json: &mut Value| {
            json["normalizer"] = doubling.clone()
        }),
        ("an id of 4e9", &|json: &mut Value| {
            json["model"]["vocab"]["a"] = json!(4_000_000_000_u64)
        }),
        ("malformed merges", &|json: &mut Value| {
            json["model"]["merges"] = json!([["a"], ["a", "b", "c"]])
        }),
    ];
    for (attack, change) in attacks {
        let tokenizer = tokenizer(folder.path(), change);
        let [articles, tokenizer, out] =
            [&articles, &tokenizer, &index].map(|path| path.to_str().unwrap());
        let (finished, cost) =
            measured_host(&["index", "build", articles, "--tokenizer", tokenizer, "--out", out]);
        let finished = finished.found(1);
        assert!(finished.stderr.contains("tokenizer.json"), "{finished}");
        assert!(!finished.stderr.contains("panicked") && cost.peak_mib < 300, "{finished}");
        print_row(
            "foreign file that runs code",
            &format!("tokenizer.json with {attack}"),
            "checked before use",
            &cost,
            "refused",
        );
    }
}

#[test]
fn dropout_of_a_tokenizer_does_not_change_counts() {
    let folder = tempfile::tempdir().unwrap();
    let articles = folder.path().join("articles.jsonl");
    fs::write(&articles, ARTICLE.repeat(50)).unwrap();
    let index = folder.path().join("index");
    let tokenizer =
        tokenizer(folder.path(), |json: &mut Value| json["model"]["dropout"] = json!(0.5));
    let [articles, tokenizer, index] =
        [&articles, &tokenizer, &index].map(|path| path.to_str().unwrap());
    host(&["index", "build", articles, "--tokenizer", tokenizer, "--out", index]).good();
    let count = ["index", "count", "Paris AND lies", "--index", index, "--json"];
    for call in 0..5 {
        let (finished, cost) = measured_host(&count);
        assert_eq!(finished.good().json()["count"], 50);
        if call == 0 {
            print_row(
                "foreign file that runs code",
                "tokenizer.json with dropout",
                "dropout is removed",
                &cost,
                "equal counts at every call",
            );
        }
    }
}

fn copied(model: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(model).unwrap().map(Result::unwrap).filter(|e| e.path().is_file()) {
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Runs a command that opens the model, with one size in its config.json replaced.
fn attack_size(model: &Path, name: &str, value: u64, args: &[&str]) {
    let path = model.join("config.json");
    let original = fs::read_to_string(&path).unwrap();
    let mut config: Value = serde_json::from_str(&original).unwrap();
    config[name] = json!(value);
    fs::write(&path, config.to_string()).unwrap();
    let (finished, cost) = measured_host(args);
    let finished = finished.found(1);
    fs::write(&path, original).unwrap();
    assert!(finished.stderr.contains("config.json") && cost.peak_mib < 500, "{finished}");
    assert!(!finished.stderr.contains("panicked"), "{finished}");
    print_row(
        "number trusted before it is compared",
        &format!("config.json with {name} = {value}"),
        "bounds; weights are compared first",
        &cost,
        "refused",
    );
}

#[test]
fn sizes_of_a_model_are_compared_before_they_are_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    copied(Path::new(EXTRACTOR), &path("extractor"));
    let nli = Path::new(env!("CARGO_MANIFEST_DIR")).join("../inference/tests/nli/small/deberta");
    copied(&nli, &path("nli"));
    fs::write(path("sentences"), "Paris lies in France.\n").unwrap();
    let completion = json!({"question": "Who?", "answers": "x", "completion": "Paris is big."});
    fs::write(path("completions.jsonl"), completion.to_string()).unwrap();
    let shown = |name: &str| path(name).to_str().unwrap().to_owned();

    let extract = ["extract", &shown("sentences"), "--extractor", &shown("extractor")];
    for (name, value) in [
        ("num_hidden_layers", 1_000_000_000_u64),
        ("head_dim", 1 << 40),
        ("hidden_size", u64::MAX),
        ("num_hidden_layers", 4_000),
    ] {
        attack_size(&path("extractor"), name, value, &extract);
    }
    let model = format!("backends.nli.model={}", shown("nli"));
    let score = [
        "score",
        &shown("completions.jsonl"),
        "--config",
        "demo",
        "--plugin",
        "fspo",
        "--set",
        &model,
    ];
    attack_size(&path("nli"), "position_buckets", 1 << 63, &score);
}

#[test]
fn prompts_beyond_the_positions_of_a_model_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let questions = folder.path().join("questions.json");
    let question = json!({"question": "who ".repeat(5_000), "answers": ["x"]});
    fs::write(&questions, json!([question]).to_string()).unwrap();
    let args =
        ["eval", "--config", "demo", "--device", "cpu", "--questions", questions.to_str().unwrap()];
    let (finished, cost) = measured_host(&args);
    let finished = finished.found(1);
    assert!(finished.stderr.contains("tokens"), "{finished}");
    print_row(
        "limit that ends in an empty result",
        "a question of 5,000 words, a model of 512 positions",
        "prompts are checked first",
        &cost,
        "refused",
    );
}

#[test]
fn recorded_probability_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let (recording, completions) =
        (folder.path().join("recording.jsonl"), folder.path().join("completions.jsonl"));
    let exchange = json!({"kind": "nli", "premise": "a", "hypothesis": "b", "entail": 5.0});
    fs::write(&recording, format!("{exchange}\n")).unwrap();
    let completion =
        json!({"question": "Who?", "answers": "x", "completion": "x", "triplets": [["x", []]]});
    fs::write(&completions, completion.to_string()).unwrap();
    let [recording, completions] = [&recording, &completions].map(|path| path.to_str().unwrap());
    let (finished, cost) =
        measured_host(&["score", completions, "--config", "demo", "--replay", recording]);
    let finished = finished.found(1);
    assert!(finished.stderr.contains("recording.jsonl:1"), "{finished}");
    print_row(
        "values outside their domain",
        "a recorded entailment of 5",
        "probabilities are from 0 to 1",
        &cost,
        "refused",
    );
}

#[test]
fn formulas_in_a_sheet_are_guarded() {
    let run = run_dir("formulas");
    short_run(&run, 1, &[]).good();
    let traces = run.join("traces.jsonl");
    let mut text = String::new();
    for mut line in lines(&traces) {
        for sentence in line["trace"]["sentences"].as_array_mut().unwrap() {
            sentence["text"] = json!("x;=1+1");
        }
        text.push_str(&format!("{line}\n"));
    }
    fs::write(&traces, text).unwrap();
    let sheet = run.join("sheet.csv");
    let [run, sheet] = [&run, &sheet].map(|path| path.to_str().unwrap());
    let (finished, cost) = measured_host(&["calibrate", "draw", run, "--out", sheet]);
    finished.good();
    let cells = fs::read_to_string(sheet).unwrap();
    assert!(cells.contains("x;'=1+1") && !cells.contains("x;=1+1"), "{cells}");
    print_row(
        "formulas in sheets",
        "a sentence `x;=1+1`",
        "an apostrophe before each formula",
        &cost,
        "guarded",
    );
}

#[test]
fn exact_counts_do_not_depend_on_shards() {
    let folder = tempfile::tempdir().unwrap();
    let world = folder.path().join("world");
    host(&["demo", "world", world.to_str().unwrap()]).good();
    let articles = world.join("articles.jsonl");
    let tokenizer = tokenizer(folder.path(), |_| ());
    let mut indexes = Vec::new();
    for shards in ["1", "2", "7"] {
        let index = folder.path().join(shards);
        let [articles, tokenizer, out] =
            [&articles, &tokenizer, &index].map(|path| path.to_str().unwrap());
        host(&[
            "index",
            "build",
            articles,
            "--tokenizer",
            tokenizer,
            "--out",
            out,
            "--shards",
            shards,
        ])
        .good();
        indexes.push(index);
    }
    let mut num_found = 0;
    for article in lines(&articles).iter().step_by(97).take(12) {
        let words: Vec<&str> = article["text"].as_str().unwrap().split(' ').collect();
        let query = format!("{} AND {}", words[1], words[words.len() / 2]);
        let query = query.replace(['.', ',', '"', '(', ')'], "");
        let mut counts = Vec::new();
        for index in &indexes {
            let index = index.to_str().unwrap();
            let (finished, cost) =
                measured_host(&["index", "count", &query, "--exact", "--json", "--index", index]);
            counts.push((finished.good().json()["count"].as_u64().unwrap(), cost));
        }
        let count = counts[0].0;
        assert!(counts.iter().all(|(other, _)| *other == count), "{query}");
        num_found += u64::from(count > 0);
        if count > 0 && num_found == 1 {
            print_row(
                "counts that depend on layout",
                "12 queries in 1, 2 and 7 shards",
                "one clause is counted in all shards",
                &counts[0].1,
                "equal counts",
            );
        }
    }
    assert!(num_found > 3, "{num_found}");
}

#[test]
fn control_characters_do_not_reach_pages() {
    let folder = tempfile::tempdir().unwrap();
    let index = folder.path().join("index");
    small_index(&index);
    let sentence = "Paris\u{0} is \u{1b}[2J in \u{202e} France.";
    let line = json!({
        "question": sentence, "answers": "Paris", "completion": sentence,
        "triplets": [[sentence, [["Paris\u{0}", "\u{1b}is in\u{202e}", "France"]]]],
    });
    let file = folder.path().join("completions.jsonl");
    fs::write(&file, line.to_string()).unwrap();
    let set = format!("corpus.index={}", index.display());
    let (finished, cost) = measured_host(&["explain", file.to_str().unwrap(), "--set", &set]);
    finished.good();
    let page = fs::read_to_string(folder.path().join("explain.html")).unwrap();
    assert!(page.contains("France") && !page.contains(['\u{0}', '\u{1b}', '\u{202e}']));
    print_row(
        "control characters",
        "a text with NUL, ESC and U+202E",
        "shown by name",
        &cost,
        "not in the page",
    );
}

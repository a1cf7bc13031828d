//! Sentences to label, labels read, rules audited.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::host::lines;
use crate::host::{host, run_dir, short_run, small_index};
use crate::transcript::Transcript;

const HEADER: &str = "id,bucket,count,question,sentence,head,relation,tail,query,label,note";

/// Labels every row of a sheet by its count; the sheets here have no comma in a cell.
fn labelled(sheet: &Path, label: impl Fn(u64) -> &'static str) -> PathBuf {
    let text = fs::read_to_string(sheet).unwrap();
    let (header, rows) = text.trim_start_matches('\u{feff}').split_once('\n').unwrap();
    assert_eq!(header, HEADER);
    let row = |row: &str| {
        let count = row.split(',').nth(2).unwrap().parse().unwrap();
        let unlabelled = row.strip_suffix(",,").unwrap_or_else(|| panic!("{row:?} has a label"));
        format!("{unlabelled},{},\n", label(count))
    };
    let path = sheet.with_extension("labelled.csv");
    fs::write(&path, format!("{header}\n{}", rows.lines().map(row).collect::<String>())).unwrap();
    path
}

/// The first sentence labelled correct of a sheet, and the first labelled incorrect.
fn first_of_each(sheet: &Path) -> PathBuf {
    let text = fs::read_to_string(sheet).unwrap();
    let (header, rows) = text.split_once('\n').unwrap();
    let first =
        |label: &str| rows.lines().find(|row| row.ends_with(&format!(",{label},"))).unwrap();
    let path = sheet.with_file_name("two.csv");
    fs::write(&path, format!("{header}\n{}\n{}\n", first("C"), first("i"))).unwrap();
    path
}

/// A fresh folder with a sheet of the paper's 700 sentences.
fn papers_sheet(name: &str) -> PathBuf {
    let folder = run_dir(name);
    fs::create_dir_all(&folder).unwrap();
    let table = [
        ("0", 0, 48, 200),
        ("1 to 4", 1, 53, 100),
        ("5 to 9", 9, 70, 100),
        ("10 to 19", 10, 73, 100),
        ("20 or more", 50, 162, 200),
    ];
    let mut text = format!("{HEADER}\r\n");
    for (bucket, count, correct, of) in table {
        for n in 0..of {
            let label = if n < correct { "Correct" } else { "incorrect" };
            text += &format!(
                "s{count}x{n},{bucket},{count},q{count}x{n},Sentence {n}.,Rome,is in,Italy,Rome AND Italy,{label},\r\n"
            );
        }
    }
    let path = folder.join("sheet.csv");
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn calibrate_read_reproduces_paper_intervals_and_thresholds() {
    let mut transcript = Transcript::default();
    let sheet = papers_sheet("paper-calibration");
    let out = sheet.with_file_name("calibrated");
    let args = ["calibrate", "read", sheet.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let read = host(&[&args[..], &["--json"]].concat()).good().json();
    let percent = |value: &Value| (1000.0 * value.as_f64().unwrap()).round() / 10.0;
    let rows: Vec<[f64; 3]> = read["buckets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| ["share", "low", "high"].map(|name| percent(&row[name])))
        .collect();
    let expected = [
        [24.0, 18.6, 30.4],
        [53.0, 43.3, 62.5],
        [70.0, 60.4, 78.1],
        [73.0, 63.6, 80.7],
        [81.0, 75.0, 85.8],
    ];
    assert_eq!(rows, expected);
    assert_eq!(read["order"], "rising");
    assert!(read["trend"]["p"].as_f64().unwrap() < 1e-20);
    let written: Value =
        serde_json::from_str(&fs::read_to_string(out.join("calibration.json")).unwrap()).unwrap();
    assert_eq!(written, read);
    assert!(fs::read_to_string(out.join("calibration.html")).unwrap().contains("<svg"));

    transcript.add(&host(&args).good()); // again into the same folder
    for file in ["first.toml", "calibrated.toml"] {
        transcript.add_text(file, &fs::read_to_string(out.join(file)).unwrap());
    }
    insta::assert_snapshot!(transcript);
    for rule in ["first", "calibrated"] {
        let config = out.join(rule).with_extension("toml");
        let plugin = format!("{rule}.wasm");
        host(&[
            "plugin",
            "check",
            &plugin,
            "--config",
            "demo",
            "--config",
            config.to_str().unwrap(),
        ])
        .good();
        let plan = [
            "train",
            "--dry-run",
            "--json",
            "--config",
            "demo",
            "--config",
            config.to_str().unwrap(),
        ];
        assert_eq!(host(&plan).good().json()["settings"]["rule"]["plugin"], json!([plugin]));
    }
}

#[test]
fn calibrate_draws_reads_and_audits_run_sentences() {
    let mut transcript = Transcript::default();
    let run = run_dir("to-calibrate");
    short_run(&run, 2, &[]).good();
    let sheet = run.join("sheet.csv");
    let draw = [
        "calibrate",
        "draw",
        run.to_str().unwrap(),
        "--out",
        sheet.to_str().unwrap(),
        "--per-bucket",
        "5,5,5,0,9999",
    ];
    let drawn = host(&[&draw[..], &["--json"]].concat()).good().json();
    let parts = drawn["buckets"].as_array().unwrap();
    let number = |part: &Value, name: &str| part[name].as_u64().unwrap();
    for part in parts {
        assert_eq!(
            number(part, "drawn"),
            number(part, "available").min(number(part, "wanted")),
            "{part}"
        );
    }
    assert_eq!((parts.len(), number(&parts[0], "drawn"), number(&parts[3], "drawn")), (5, 5, 0));
    let before = fs::read_to_string(&sheet).unwrap();
    transcript.add_failure(&host(&draw));
    assert_eq!(fs::read_to_string(&sheet).unwrap(), before);
    let other = run.join("other.csv");
    let answers = [run.join("answers_before.jsonl"), run.join("answers_after.jsonl")];
    let from_answers =
        ["calibrate", "draw", answers[0].to_str().unwrap(), answers[1].to_str().unwrap(), "--out"];
    transcript.add(
        &host(&[&from_answers[..], &[other.to_str().unwrap()]].concat()).good().without_figures(),
    );

    transcript
        .add_failure(&host(&["calibrate", "read", sheet.to_str().unwrap()]).without_figures());
    let bad = labelled(&sheet, |_| "corect");
    let three: Vec<String> =
        fs::read_to_string(&bad).unwrap().lines().take(3).map(str::to_owned).collect();
    fs::write(&bad, three.join("\n")).unwrap();
    transcript.add_failure(&host(&["calibrate", "read", bad.to_str().unwrap()]));
    let good = labelled(&sheet, |count| if count == 0 { "i" } else { "C" });
    let read = host(&["calibrate", "read", good.to_str().unwrap(), "--json"]).good().json();
    assert_eq!(read["buckets"][0]["correct"], 0);
    assert_eq!(read["unlabelled"], 0);

    let unused =
        ["--config", "demo", "--set", "policy.model=nowhere", "--set", "extract.model=nowhere"];
    let audit = [
        "calibrate",
        "audit",
        "--json",
        "--sheet",
        good.to_str().unwrap(),
        "--plugin",
        "first.wasm",
    ];
    let audited = host(&[&audit[..], &unused].concat()).good().json();
    let first = &audited["rules"][0];
    assert_eq!(
        (&first["auc"]["value"], first["rule"].as_str()),
        (&json!(1.0), Some("first")),
        "{first}"
    );
    assert_eq!(first["by_reward"][0]["label"], "-0.300");
    let two = first_of_each(&good);
    let audit = ["calibrate", "audit", "--sheet", two.to_str().unwrap(), "--plugin", "first.wasm"];
    transcript.add(&host(&[&audit[..], &unused].concat()).good());
    let one_sided = labelled(&sheet, |_| "correct");
    let audit = ["calibrate", "audit", "--sheet", one_sided.to_str().unwrap()];
    transcript.add_failure(&host(&[&audit[..], &["--index", "demo"]].concat()));
    transcript.add_failure(&host(&audit));
    insta::assert_snapshot!(transcript);
}

#[test]
fn invalid_calibrate_arguments_fail_before_computing() {
    let mut transcript = Transcript::default();
    let sheet = papers_sheet("not-calibrated");
    let sheet = sheet.to_str().unwrap();
    let out = run_dir("not-drawn").with_extension("csv");
    let draw = |more: &[&str]| {
        host(&[&["calibrate", "draw", "--out", out.to_str().unwrap()], more].concat())
    };
    transcript.add_usage_error(&draw(&[]));
    transcript.add_failure(&draw(&["nowhere"]));
    transcript.add_failure(&draw(&[sheet]));
    transcript.add_failure(&draw(&[sheet, "--buckets", "5,1"]));
    transcript.add_failure(&host(&["calibrate", "read", "nowhere.csv"]));
    let audit = |more: &[&str]| host(&[&["calibrate", "audit"], more].concat());
    transcript.add_failure(&audit(&["--plugin", "frist.wasm"]));
    transcript.add_failure(&audit(&["--index", "demo", "--sheet", "nowhere.csv"]));
    transcript.add_failure(&audit(&["--config", "demo", "--questions", sheet]));
    transcript.add_usage_error(&audit(&["--samples", "0"]));
    assert!(!out.exists());
    insta::assert_snapshot!(transcript);
}

#[test]
fn calibrate_audits_rules_on_demo_truth() {
    let mut transcript = Transcript::default();
    let out = run_dir("audited");
    fs::create_dir_all(out.parent().unwrap()).unwrap();
    let constant = [
        "--plugin",
        "linear.wasm",
        "--set",
        "rule.settings.linear.zero=0.0",
        "--set",
        "rule.settings.linear.most=0.0",
    ];
    let rules = [&["--plugin", "first.wasm", "--plugin", "min.wasm"], &constant[..]].concat();
    let small = ["--device", "cpu", "--limit", "48", "--samples", "2"];
    let audit =
        [&["calibrate", "audit", "--out", out.to_str().unwrap()], &small[..], &rules].concat();
    let audited = host(&[&audit[..], &["--json"]].concat()).good().json();
    let rules = audited["rules"].as_array().unwrap();
    let auc = |n: usize| {
        let (auc, interval) = (&rules[n]["auc"], &rules[n]["auc"]["interval"]);
        [&interval["low"], &auc["value"], &interval["high"]].map(|number| number.as_f64().unwrap())
    };
    assert_eq!(auc(2), [0.5; 3], "a constant says nothing");
    assert_eq!(rules[2]["rank_correlation"], Value::Null);
    for n in [0, 1] {
        let [low, value, high] = auc(n);
        assert!(0.5 < low && low <= value && value <= high && high <= 1.0, "{}", rules[n]);
        assert!(rules[n]["mean_true"].as_f64() > rules[n]["mean_false"].as_f64(), "{}", rules[n]);
    }
    let sentences = lines(&out.join("sentences.jsonl"));
    assert_eq!(
        (audited["decided"].as_u64(), &rules[0]["sentences"]),
        (Some(sentences.len() as u64), &audited["decided"])
    );
    let truths = sentences.iter().filter(|sentence| sentence["is_true"] == true).count();
    assert!(
        (audited["true_share"].as_f64().unwrap() - truths as f64 / sentences.len() as f64).abs()
            < 1e-12
    );
    assert!(out.join("audit.json").is_file() && out.join("audit.html").is_file());
    transcript.add_failure(&host(&audit));

    let shown = host(&[&["calibrate", "audit"], &small[..], &["--plugin", "first.wasm"]].concat());
    let verdict = shown.good().without_figures().stdout;
    transcript.add_text("verdict", verdict.lines().last().unwrap());
    insta::assert_snapshot!(transcript);
}

#[test]
fn audit_extracts_sentences_of_sheet_again() {
    let folder = tempfile::tempdir().unwrap();
    let [index, sheet] = ["index", "sheet.csv"].map(|name| folder.path().join(name));
    small_index(&index);
    let rows = [
        "a1,0,0,Where is it?,Paris is a city in France.,Quito,in,Ecuador,c",
        "a2,0,0,Where is it?,Lima is a city in France.,Quito,in,Ecuador,i",
    ];
    let header = "id,bucket,count,question,sentence,head,relation,tail,label";
    fs::write(&sheet, format!("{header}\n{}\n", rows.join("\n"))).unwrap();
    let [index, sheet] = [&index, &sheet].map(|path| path.to_str().unwrap());
    let audit = ["calibrate", "audit", "--sheet", sheet, "--index", index, "--json"];
    let audit = [&audit[..], &["--plugin", "first.wasm", "--set", "extract.kind=names"]].concat();
    let auc = |more: &[&str]| {
        host(&[&audit[..], more].concat()).good().json()["rules"][0]["auc"]["value"].clone()
    };
    assert_eq!(auc(&[]), 0.5, "the sheet's fact is in no text");
    assert_eq!(auc(&["--extract"]), 1.0);
    let refused = host(&[&audit[..], &["--extract", "--set", "extract.kind=model"]].concat());
    assert!(refused.stderr.contains("extract.model"), "{refused}");
    let by_demo = ["--extract", "--set", "extract.kind=model", "--extractor", "demo"];
    let refused = host(&[&audit[..], &by_demo].concat());
    assert!(refused.stderr.contains("reads the demo's sentences alone"), "{refused}");
}

#[test]
fn audit_of_sheet_refuses_flags_without_effect() {
    let sheet = papers_sheet("audited-sheet");
    let audit = ["calibrate", "audit", "--index", "demo", "--sheet", sheet.to_str().unwrap()];
    for (flag, value) in [("--model", "demo"), ("--device", "cpu"), ("--extractor", "demo")] {
        let refused = host(&[&audit[..], &[flag, value]].concat()).found(1);
        assert!(refused.stderr.contains(&format!("{flag} is not for --sheet: ")), "{refused}");
    }
}

#[test]
fn corpus_is_calibrated_without_labels() {
    let folder = run_dir("calibrate-corpus");
    let calibrate = |out: &Path, more: &[&str]| {
        let out = out.to_str().unwrap();
        host(&[&["calibrate", "corpus", "--facts", "300", "--out", out, "--json"], more].concat())
    };
    let (by_model, by_names) = (folder.join("model"), folder.join("names"));
    let found = calibrate(&by_model, &[]).good().json();
    assert_eq!(calibrate(&folder.join("again"), &[]).good().json(), found, "a seed decides it");
    let names = calibrate(&by_names, &["--set", "extract.kind=names"]).good().json();
    for found in [&found, &names] {
        assert!(found["auc"]["value"].as_f64().unwrap() > 0.9, "{found}");
        let buckets = found["buckets"].as_array().unwrap();
        let share = |bucket: &Value| bucket["share"].as_f64().unwrap();
        assert!(share(&buckets[0]) < 0.1 && share(buckets.last().unwrap()) > 0.9, "{found}");
        assert!(found["pairs"].as_u64().unwrap() > 150, "{found}");
    }
    // The sheet is a labelled one, and the settings are a rule's.
    let sheet = by_model.join("sheet.csv");
    let read = host(&["calibrate", "read", sheet.to_str().unwrap(), "--json"]).good().json();
    assert_eq!(read["suggestions"], found["suggestions"]);
    let config = by_model.join("first.toml");
    host(&["plugin", "check", "first.wasm", "--config", config.to_str().unwrap()]).good();
    let page = fs::read_to_string(by_model.join("calibration.html")).unwrap();
    assert!(page.contains("P(fact) by count") && !page.contains("P(correct)"), "{page}");
    let refused = calibrate(&by_model, &[]);
    assert!(refused.stderr.contains("is there already"), "{refused}");
    let refused = calibrate(&folder.join("two"), &["--plugin", "first", "--plugin", "min"]);
    assert!(refused.stderr.contains("one rule makes the queries"), "{refused}");
}

#[test]
fn corpus_that_repeats_no_fact_suggests_no_settings() {
    let folder = tempfile::tempdir().unwrap();
    let [articles, index, out] =
        ["articles.jsonl", "index", "thresholds"].map(|name| folder.path().join(name));
    let mut lines = String::new();
    for n in 0..200 {
        lines += &format!("{{\"text\": \"Paris{n} met Lima{n} in the year of the flood.\"}}\n");
    }
    fs::write(&articles, lines).unwrap();
    let tokenizer = format!("{}/../demo/assets/policy/tokenizer.json", env!("CARGO_MANIFEST_DIR"));
    let [articles, index, out] = [&articles, &index, &out].map(|path| path.to_str().unwrap());
    host(&["index", "build", articles, "--tokenizer", &tokenizer, "--out", index]).good();
    let names = ["--set", "extract.kind=names", "--facts", "150"];
    let calibrate = ["calibrate", "corpus", "--index", index, "--out", out];
    let found = host(&[&calibrate[..], &names].concat()).good();
    assert!(found.stdout.contains("no settings are suggested"), "{found}");
    assert!(!Path::new(out).join("calibrated.toml").exists());
    assert!(Path::new(out).join("calibration.html").exists());
}

#[test]
fn calibrated_fact_has_its_own_query() {
    let folder = tempfile::tempdir().unwrap();
    let [articles, index, out] =
        ["articles.jsonl", "index", "thresholds"].map(|name| folder.path().join(name));
    // Min takes the second fact of the first sentence: the first fact is in two articles.
    let mut lines = String::new();
    for n in 100..300 {
        let met = format!("The painter Paris{n} met Lima{n}");
        lines += &format!("{{\"text\": \"{met} near Oslo{n} in the year of the flood.\"}}\n");
        lines += &format!("{{\"text\": \"{met} in the year of the flood.\"}}\n");
    }
    fs::write(&articles, lines).unwrap();
    let tokenizer = format!("{}/../demo/assets/policy/tokenizer.json", env!("CARGO_MANIFEST_DIR"));
    let [articles, index, out] = [&articles, &index, &out].map(|path| path.to_str().unwrap());
    host(&["index", "build", articles, "--tokenizer", &tokenizer, "--out", index]).good();
    let names = ["--set", "extract.kind=names", "--facts", "150", "--plugin", "min.wasm"];
    let calibrate = ["calibrate", "corpus", "--index", index, "--out", out];
    host(&[&calibrate[..], &names].concat()).good();

    let mut second_facts = 0;
    let mut sheet = csv::Reader::from_path(Path::new(out).join("sheet.csv")).unwrap();
    for row in sheet.records().map(Result::unwrap) {
        let [head, tail, query] = [5, 7, 8].map(|column| row[column].to_owned());
        assert_eq!(query, format!("{head} AND {tail}"), "{row:?}");
        second_facts += usize::from(tail.starts_with("Oslo"));
    }
    assert!(second_facts > 0);
}

#[test]
fn audited_rule_has_a_weight_of_one() {
    let folder = tempfile::tempdir().unwrap();
    let [index, sheet] = ["index", "sheet.csv"].map(|name| folder.path().join(name));
    small_index(&index);
    let rows = [
        "a1,0,0,Where is it?,Paris is a city in France.,Paris,in,France,c",
        "a2,0,0,Where is it?,Lima is a city in France.,Lima,in,France,i",
    ];
    let header = "id,bucket,count,question,sentence,head,relation,tail,label";
    fs::write(&sheet, format!("{header}\n{}\n", rows.join("\n"))).unwrap();
    let [index, sheet] = [&index, &sheet].map(|path| path.to_str().unwrap());
    let audit = ["calibrate", "audit", "--sheet", sheet, "--index", index, "--json"];
    let rules = ["--plugin", "first.wasm:0", "--plugin", "min.wasm:-2"];
    let audited = host(&[&audit[..], &rules].concat()).good().json();
    for rule in audited["rules"].as_array().unwrap() {
        assert_eq!(rule["auc"]["value"], 1.0, "{audited}");
    }
}

#[test]
fn audit_opens_the_configured_adapter() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("adapter_config.json"), "{}").unwrap();
    let adapter = format!("policy.adapter={}", folder.path().display());
    let audit = ["calibrate", "audit", "--config", "demo", "--device", "cpu", "--limit", "1"];
    let set = ["--samples", "1", "--set", &adapter];
    let refused = host(&[&audit[..], &set].concat()).found(1);
    assert!(refused.stderr.contains("loading the adapter"), "{refused}");
}

//! Questions as people have them: Parquet, datasets' folders, downloaded datasets; and pools of
//! them.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::{Value, json};

use crate::host::{host, host_with_cache, lines, run_dir};
use crate::transcript::Transcript;

/// A list of strings as Arrow, and with it Hugging Face, lays it out.
const QUESTIONS: &str = "message schema {
    optional binary question (UTF8);
    optional group answer (LIST) { repeated group list { optional binary element (UTF8); } } }";

/// The demo's questions, those to train on and those to measure with.
fn demo_questions(folder: &Path) -> [Vec<Value>; 2] {
    host(&["demo", "world", folder.to_str().unwrap()]).good();
    ["train.json", "eval.json"]
        .map(|name| serde_json::from_str(&fs::read_to_string(folder.join(name)).unwrap()).unwrap())
}

/// Writes questions as NQ-Open has them on the hub.
fn write_parquet(path: &Path, questions: &[Value]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let schema = Arc::new(parse_message_type(QUESTIONS).unwrap());
    let properties = Arc::new(WriterProperties::default());
    let mut file =
        SerializedFileWriter::new(File::create(path).unwrap(), schema, properties).unwrap();
    let mut group = file.next_row_group().unwrap();
    let text = |value: &Value| ByteArray::from(value.as_str().unwrap());
    let texts: Vec<ByteArray> =
        questions.iter().map(|question| text(&question["question"])).collect();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<ByteArrayType>().write_batch(&texts, Some(&vec![1; texts.len()]), None).unwrap();
    column.close().unwrap();
    // Definition level 3: an element; 1: an empty list. Repetition level 0: a new list.
    let (mut golds, mut definition, mut repetition) = (Vec::new(), Vec::new(), Vec::new());
    for question in questions {
        let answers = question["answers"].as_array().unwrap();
        definition.extend(if answers.is_empty() { vec![1] } else { vec![3; answers.len()] });
        repetition.extend((0..answers.len().max(1)).map(|at| i16::from(at > 0)));
        golds.extend(answers.iter().map(text));
    }
    let mut column = group.next_column().unwrap().unwrap();
    column
        .typed::<ByteArrayType>()
        .write_batch(&golds, Some(&definition), Some(&repetition))
        .unwrap();
    column.close().unwrap();
    group.close().unwrap();
    file.close().unwrap();
}

#[test]
fn question_files_and_dataset_splits_are_equivalent() {
    let mut transcript = Transcript::default();
    let out = run_dir("places");
    let [_, eval] = demo_questions(&out);
    let (eval, other) = (&eval[..8], &eval[8..10]);
    let json = out.join("eight.json");
    fs::write(&json, json!(eval).to_string()).unwrap();
    let dataset = out.join("nq");
    write_parquet(&dataset.join("nq_open/validation-00000-of-00002.parquet"), &eval[..5]);
    write_parquet(&dataset.join("nq_open/validation-00001-of-00002.parquet"), &eval[5..]);
    write_parquet(&dataset.join("nq_open/train-00000-of-00001.parquet"), other);
    fs::write(dataset.join("README.md"), "").unwrap();

    let evaluate = |questions: &str| {
        let mut all = host(&[
            "eval",
            "--config",
            "demo",
            "--device",
            "cpu",
            "--json",
            "--questions",
            questions,
        ])
        .good()
        .json();
        all[0].as_object_mut().unwrap().remove("questions");
        all
    };
    let split = format!("{}#validation", dataset.display());
    let expected = evaluate(json.to_str().unwrap());
    assert_eq!(evaluate(&split), expected);
    let set = format!("question.eval={split}");
    let by_setting =
        host(&["eval", "--config", "demo", "--device", "cpu", "--json", "--set", &set])
            .good()
            .json();
    assert_eq!(by_setting[0]["grades"], expected[0]["grades"]);

    let filter = run_dir("filtered-parquet");
    let small = [
        "--set",
        "filter.num_generations=2",
        "--set",
        "filter.batch=8",
        "--json",
        "--device",
        "cpu",
    ];
    let questions =
        ["filter", "--config", "demo", "--questions", &split, "--out", filter.to_str().unwrap()];
    assert_eq!(host(&[&questions[..], &small].concat()).good().json()["questions"], 8);

    let folder = dataset.to_str().unwrap();
    transcript.add_failure(&host(&["eval", "--config", "demo", "--questions", folder]));
    transcript.add_failure(&host(&[
        "eval",
        "--config",
        "demo",
        "--questions",
        &format!("{folder}#test"),
    ]));
    transcript.add_failure(&host(&["train", "--dry-run", "--set", "question.train=who/knows"]));
    transcript.add_failure(&host(&[
        "train",
        "--dry-run",
        "--set",
        "question.train=who/knows.json",
    ]));

    let shard = dataset.join("nq_open/train-00000-of-00001.parquet");
    let whole = fs::read(&shard).unwrap();
    fs::write(&shard, &whole[..whole.len() / 2]).unwrap();
    transcript.add_failure(&host(&[
        "eval",
        "--config",
        "demo",
        "--questions",
        &format!("{folder}#train"),
    ]));
    // A row without a gold.
    write_parquet(&shard, &[json!({"question": "q", "answers": []})]);
    transcript.add_failure(&host(&[
        "eval",
        "--config",
        "demo",
        "--questions",
        shard.to_str().unwrap(),
    ]));
    insta::assert_snapshot!(transcript);
}

#[test]
fn downloaded_dataset_is_found_by_name() {
    let cache = tempfile::tempdir().unwrap();
    let [_, eval] = demo_questions(&cache.path().join("world"));
    let repository = cache.path().join("huggingface/hub/datasets--some-one--nq.open");
    write_parquet(
        &repository.join("snapshots/abc/data/validation-00000-of-00001.parquet"),
        &eval[..4],
    );
    fs::create_dir(repository.join("refs")).unwrap();
    fs::write(repository.join("refs/main"), "abc").unwrap();
    for name in ["some-one/nq.open", "some-one/nq.open#validation"] {
        let evaluated = host_with_cache(
            cache.path(),
            &["eval", "--config", "demo", "--device", "cpu", "--json", "--questions", name],
        )
        .good()
        .json();
        assert_eq!(
            evaluated[0]["grades"]
                .as_object()
                .unwrap()
                .values()
                .filter_map(Value::as_u64)
                .sum::<u64>(),
            4
        );
    }
}

#[test]
fn pool_retains_unique_questions_known_to_corpus() {
    let mut transcript = Transcript::default();
    let out = run_dir("pooled");
    let [train, eval] = demo_questions(&out);
    let is_asked_so = |question: &Value| {
        question["question"].as_str().unwrap().starts_with("Where was")
            && question["answers"] != json!([])
    };
    let graded: Vec<Value> = train.into_iter().filter(is_asked_so).take(30).collect();
    assert_eq!(graded.len(), 30);
    let mut first = graded.clone();
    let shouted = graded[0]["question"].as_str().unwrap().to_uppercase();
    first.push(json!({"question": shouted, "answers": graded[0]["answers"]}));
    first.push(json!({"question": "Where was Zzyzx Qwghlm born?", "answers": ["Nowhere"]}));
    first.push(json!({"question": "Who knows?", "answers": []}));
    first.push(eval[0].clone());
    let second = out.join("second.parquet");
    write_parquet(&second, &graded[..3]);
    let (first_path, eval_path) = (out.join("first.json"), out.join("eval.json"));
    fs::write(&first_path, json!(first).to_string()).unwrap();

    let pool = out.join("pool");
    let [first_path, second, eval_path, pool_path] =
        [&first_path, &second, &eval_path, &pool].map(|path| path.to_str().unwrap());
    let files = ["data", "pool", "--config", "demo", first_path, second, "--near", "1", "--json"];
    let made =
        host(&[&files[..], &["--exclude", eval_path, "--out", pool_path]].concat()).good().json();
    assert_eq!(made["read"], 37);
    let dropped = lines(&pool.join("dropped.jsonl"));
    let of = |reason: &str| -> Vec<&Value> {
        dropped.iter().filter(|line| line["reason"] == reason).collect()
    };
    assert_eq!(made["retained"].as_u64().unwrap() as usize + dropped.len(), 37);
    assert_eq!(
        (of("no_gold").len(), of("in_evaluation").len(), of("words_not_found").len()),
        (1, 1, 1),
        "{made}"
    );
    assert_eq!(of("in_evaluation")[0]["of"]["record"], 1);
    assert!(of("words_not_found")[0]["query"].as_str().unwrap().contains("Qwghlm"));
    let retained = lines(&pool.join("questions.jsonl"));
    let is_kept =
        |question: &Value| retained.iter().any(|line| line["question"] == question["question"]);
    let again = graded[..3].iter().filter(|question| is_kept(question)).count()
        + usize::from(is_kept(&graded[0]));
    assert_eq!(of("duplicate").len(), again, "{dropped:?}");
    assert!(
        of("duplicate")
            .iter()
            .all(|line| line["of"]["file"].as_str().unwrap().ends_with("first.json"))
    );
    // Some births are in no article.
    let articles = lines(&out.join("articles.jsonl"));
    for question in &graded {
        let name = question["question"]
            .as_str()
            .unwrap()
            .trim_start_matches("Where was ")
            .trim_end_matches(" born?");
        let texts = articles.iter().filter_map(|article| article["text"].as_str());
        let is_stated = texts.into_iter().any(|text| {
            text.contains(name) && text.contains(question["answers"][0].as_str().unwrap())
        });
        assert_eq!(is_kept(question), is_stated, "{question}");
    }
    assert!(!of("answer_not_found").is_empty() && retained.len() > 10, "{made}");

    // A pool of a pool drops nothing, and is a question file.
    let questions = pool.join("questions.jsonl");
    let again = out.join("again");
    let files = [
        "data",
        "pool",
        "--config",
        "demo",
        questions.to_str().unwrap(),
        "--near",
        "1",
        "--out",
        again.to_str().unwrap(),
    ];
    transcript.add(&host(&[&files[..], &["--exclude", eval_path]].concat()).good());
    assert_eq!(lines(&again.join("questions.jsonl")), retained);
    let unasked = ["--no-grounding", "--set", "corpus.index=nowhere", "--json"];
    let unasked = host(
        &[
            &["data", "pool", "--config", "demo", first_path],
            &unasked[..],
            &["--out", out.join("bare").to_str().unwrap()],
        ]
        .concat(),
    );
    assert_eq!(unasked.good().json()["dropped"]["words_not_found"], Value::Null);

    transcript
        .add_failure(&host(&["data", "pool", "--config", "demo", first_path, "--out", pool_path]));
    transcript.add_failure(&host(&["data", "pool", "--config", "demo", first_path, first_path]));
    transcript
        .add_usage_error(&host(&["data", "pool", "--config", "demo", first_path, "--near", "2"]));
    transcript.add_failure(&host(&["data", "pool", "--config", "demo", "nowhere.json"]));
    insta::assert_snapshot!(transcript);
}

#[test]
fn attached_evidence_contains_answers() {
    let mut transcript = Transcript::default();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    host(&["demo", "world", &path("world")]).good();
    let all: Vec<Value> =
        serde_json::from_str(&fs::read_to_string(path("world/eval.json")).unwrap()).unwrap();
    let mut questions = all[..40].to_vec();
    for question in &mut questions {
        question.as_object_mut().unwrap().remove("evidence");
    }
    questions[0]["evidence"] = json!("its own");
    fs::write(path("questions.json"), json!(questions).to_string()).unwrap();
    let (file, out) = (path("questions.json"), path("with-evidence.jsonl"));
    let attach =
        ["data", "evidence", "--config", "demo", &file, "--k", "3", "--out", &out, "--json"];
    let attached = host(&attach).good().json();
    assert_eq!(
        (&attached["attached"], &attached["own"], &attached["without"]),
        (&json!(39), &json!(1), &json!(0))
    );
    let lines = lines(Path::new(&out));
    assert_eq!(lines[0]["evidence"], json!(["its own"]));
    let holds = |line: &Value| {
        let golds = line["answers"].as_array().unwrap();
        let texts = line["evidence"].as_array().unwrap();
        let gold_in = |text: &Value| {
            golds.iter().any(|gold| text.as_str().unwrap().contains(gold.as_str().unwrap()))
        };
        assert!(texts.len() <= 3);
        texts.iter().any(gold_in)
    };
    let held = lines[1..].iter().filter(|line| holds(line)).count();
    assert!(held > 30, "{held} of 39 have a passage with the answer");

    // FSPO labels no sentence without evidence.
    let mut completions = String::new();
    for question in [&questions[1], &lines[1]] {
        let mut completion = question.clone();
        completion["completion"] =
            json!("<think>Somebody lives somewhere in this world.</think><answer>It</answer>");
        completions += &format!("{completion}\n");
    }
    fs::write(path("completions.jsonl"), completions).unwrap();
    let backends = format!("{}/../../configs/demo-backends.toml", env!("CARGO_MANIFEST_DIR"));
    let demo =
        ["score", "--config", "demo", "--config", &backends, "--plugin", "fspo.wasm", "--json"];
    let scored = host(&[&demo[..], &[&path("completions.jsonl")]].concat()).good().stdout;
    let mut labels = Vec::new();
    for line in scored.lines() {
        let trace: Value = serde_json::from_str(line).unwrap();
        labels.push(trace["sentences"][0]["verdict"]["reward"].clone());
    }
    assert_eq!(labels, [Value::Null, json!(-1.0)]);

    transcript.add_failure(&host(&attach));
    let missing = [
        "data",
        "evidence",
        "--index",
        folder.path().to_str().unwrap(),
        &file,
        "--out",
        &path("none"),
    ];
    transcript.add_failure(&host(&missing));
    insta::assert_snapshot!(transcript);
}

#[test]
fn demonstrations_are_written_from_questions() {
    let folder = run_dir("demonstrations");
    fs::create_dir_all(&folder).unwrap();
    let [questions, out] =
        ["questions.jsonl", "out.jsonl"].map(|name| folder.join(name).to_str().unwrap().to_owned());
    let records = [
        json!({"question": "Who kept it?", "answers": "Orla Venn; Venn"}),
        json!({"question": "Who left?", "answer": {"value": "<unk>", "aliases": []}}),
        json!({"question": "Which grade?", "answer": "A+"}),
    ];
    let text: String = records.iter().map(|record| format!("{record}\r\n")).collect();
    fs::write(&questions, format!("\u{feff}{text}")).unwrap();
    let written = host(&["data", "demonstrations", &questions, "--out", &out, "--json"]).good();
    let counts: Value = serde_json::from_str(&written.stdout).unwrap();
    assert_eq!((&counts["demonstrations"], &counts["without"]), (&json!(2), &json!(1)));
    let made = lines(Path::new(&out));
    assert_eq!(made[0]["question"], "Who kept it?");
    let completion = made[0]["completion"].as_str().unwrap();
    assert!(completion.starts_with("<think>The question is: Who kept it? "), "{completion}");
    assert!(completion.ends_with("</think><answer>Orla Venn</answer>"), "{completion}");
    assert!(made[1]["completion"].as_str().unwrap().ends_with("<answer>A+</answer>"));

    let mut transcript = Transcript::default();
    transcript.add_failure(&host(&["data", "demonstrations", &questions, "--out", &out]));
    let template = folder.join("template.txt");
    fs::write(&template, "<think>short</think><answer>{answer}</answer>").unwrap();
    let other = folder.join("other.jsonl");
    let [template, other] = [&template, &other].map(|path| path.to_str().unwrap());
    let with_template =
        ["data", "demonstrations", &questions, "--template", template, "--out", other];
    transcript.add_failure(&host(&with_template));
    insta::assert_snapshot!(transcript);
}

#[test]
fn demo_replaces_no_other_file() {
    let folder = run_dir("world-again");
    let write = ["demo", "world", folder.to_str().unwrap()];
    host(&write).good();
    host(&write).good(); // the same content

    let [articles, own] = ["articles.jsonl", "eval.json"].map(|name| folder.join(name));
    fs::remove_file(&articles).unwrap();
    fs::write(&own, "[]").unwrap();
    let refused = host(&write).found(1);
    assert!(refused.stderr.contains("eval.json has other content"), "{refused}");
    assert_eq!(fs::read_to_string(&own).unwrap(), "[]");
    assert!(!articles.exists(), "refused before anything is written");
}

#[test]
fn pool_without_questions_fails() {
    let folder = run_dir("empty-pool");
    fs::create_dir_all(&folder).unwrap();
    let questions = folder.join("questions.jsonl");
    fs::write(&questions, r#"{"question": "Who?", "answers": "<unk>"}"#).unwrap();
    let out = folder.join("pool");
    let [questions, out] = [&questions, &out].map(|path| path.to_str().unwrap());
    let pool = host(&["data", "pool", questions, "--no-grounding", "--out", out]);
    let mut transcript = Transcript::default();
    transcript.add_failure(&pool);
    insta::assert_snapshot!(transcript);
    assert!(!pool.stdout.contains("corver-host filter"), "{}", pool.stdout);
}

//! Real Wikipedia text, a real tokenizer, real questions, through the built binary. The files lie
//! outside this repository: `CORVER_SHARED` names their folder (`make conformance`).

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::golden::shared;
use crate::host::{EXTRACTOR, host, lines, run_dir};

/// Llama 2's chat format, written for this test.
const CHAT_TEMPLATE: &str = "{%- set ns = namespace(system='') -%}{%- for message in messages -%}\
    {%- if message['role'] == 'system' -%}{%- set ns.system = '<<SYS>>\\n' + message['content'] + '\\n<</SYS>>\\n\\n' -%}\
    {%- elif message['role'] == 'user' -%}{{ '<s>[INST] ' + ns.system + message['content'].strip() + ' [/INST]' }}\
    {%- set ns.system = '' -%}{%- else -%}{{ ' ' + message['content'].strip() + ' </s>' }}{%- endif -%}{%- endfor -%}";

#[test]
#[ignore = "needs CORVER_SHARED: `make conformance`"]
fn real_text_is_indexed_scored_and_trained_on() {
    let corpora = shared("corpora");
    let folder = tempfile::tempdir().unwrap();
    let index = folder.path().join("index");
    let tokenizer = shared("tokenizers/llama2/tokenizer.json");
    let inputs =
        ["2wiki-passages", "squad-dev"].map(|name| corpora.join(name).with_extension("jsonl.gz"));
    let [first, second, tokenizer_path, index_path] =
        [&inputs[0], &inputs[1], &tokenizer, &index].map(|path| path.to_str().unwrap());
    host(&["index", "build", first, second, "--tokenizer", tokenizer_path, "--out", index_path])
        .good();
    host(&["index", "verify", "--index", index_path]).good();

    counts_are_the_official_ones(folder.path(), index_path);
    three_steps_of_training(folder.path(), index_path);
}

#[test]
#[ignore = "needs CORVER_SHARED: `make conformance`"]
fn real_questions_make_a_pool() {
    let corpora = shared("corpora");
    let out = run_dir("real-pool");
    let (index, pool) = (out.join("index"), out.join("pool"));
    fs::create_dir_all(&out).unwrap();
    let names = [
        "data/train/nq_webq_learning_zone_llama31_8b.json",
        "data/eval/nq_open_validation.json",
        "data/eval/popqa_test.json",
        "tokenizers/llama2/tokenizer.json",
    ];
    let paths = names.map(shared);
    let [train, nq, popqa, tokenizer] = paths.each_ref().map(|path| path.to_str().unwrap());
    let articles = corpora.join("2wiki-passages.jsonl.gz");
    let [articles, index, pool_path] =
        [&articles, &index, &pool].map(|path| path.to_str().unwrap());
    host(&["index", "build", articles, "--tokenizer", tokenizer, "--out", index]).good();
    let set = format!("corpus.index={index}");
    let files = [
        "data",
        "pool",
        train,
        "--exclude",
        nq,
        popqa,
        "--set",
        &set,
        "--out",
        pool_path,
        "--json",
    ];
    let made = host(&files).good().json();
    assert_eq!(made["read"], 4861);
    let dropped = lines(&pool.join("dropped.jsonl"));
    let retained = lines(&pool.join("questions.jsonl"));
    assert_eq!(retained.len() + dropped.len(), 4861);
    assert_eq!(
        (&made["dropped"]["in_evaluation"], &made["dropped"]["near_evaluation"]),
        (&json!(2), &json!(11))
    );
    let of = |question: &str| dropped.iter().find(|line| line["question"] == question).unwrap();
    let same = of("what is the capital of oregon?");
    assert_eq!(
        (&same["reason"], &same["of"]["question"]),
        (&json!("in_evaluation"), &json!("What is the capital of Oregon?"))
    );
    // Titles of a corpus of 5,843 passages are few, and what is retained is in it.
    assert!(
        retained.len() > 50 && made["dropped"]["title_not_found"].as_u64().unwrap() > 2_000,
        "{made}"
    );
}

/// Completions written so that a rule asks exactly the golden queries.
fn counts_are_the_official_ones(folder: &Path, index: &str) {
    let golden = fs::read_to_string(shared("golden/corpus/cnf.jsonl")).unwrap();
    let pairs: Vec<(String, String, u64)> =
        golden.lines().filter_map(|line| word_pair(&serde_json::from_str(line).unwrap())).collect();
    assert!(pairs.len() >= 20, "only {} golden queries fit", pairs.len());
    assert!(pairs.iter().any(|(_, _, count)| *count > 0));

    let questions = questions();
    let completion = |(number, (head, tail, _)): (usize, &(String, String, u64))| {
        let sentence = format!("What is known of {head} also concerns {tail}.");
        let question = &questions[number % questions.len()];
        json!({
            "question": question["question"],
            "answers": question["answers"],
            "completion": format!("<think>{sentence}</think><answer>{tail}"),
            "triplets": [[sentence, [[head, "concerns", tail]]], [tail, []]],
        })
        .to_string()
    };
    let text: Vec<String> = pairs.iter().enumerate().map(completion).collect();
    let file = folder.join("completions.jsonl");
    fs::write(&file, text.join("\n")).unwrap();
    let set = format!("corpus.index={index}");
    let official = "corpus.mode=compatible"; // equal to the official engine
    let args = ["score", file.to_str().unwrap(), "--set", &set, "--set", official, "--json"];
    let scored = host(&args).good();
    let traces: Vec<Value> =
        scored.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(traces.len(), pairs.len());
    for (trace, (head, tail, count)) in traces.iter().zip(&pairs) {
        let verdict = &trace["sentences"][0]["verdict"];
        // First needs no count beyond 20, where counting may stop.
        let found = verdict["count"].as_u64().unwrap();
        assert!(found == *count || (20..*count).contains(&found), "{head} AND {tail}: {verdict}");
        let reward = match count {
            0 => -0.3,
            1..=4 => -0.1,
            5..=19 => 0.0,
            _ => 0.1,
        };
        assert!((verdict["reward"].as_f64().unwrap() - reward).abs() < 1e-6, "{verdict}");
    }
}

/// A golden query of two single words, at the reward's settings, that a rule would make of (word,
/// …, word).
fn word_pair(row: &Value) -> Option<(String, String, u64)> {
    let words: Vec<&str> = row["cnf_words"]
        .as_array()?
        .iter()
        .map(|clause| clause.as_array()?.first()?.as_str())
        .collect::<Option<_>>()?;
    let single = row["cnf_words"]
        .as_array()?
        .iter()
        .all(|clause| clause.as_array().is_some_and(|terms| terms.len() == 1));
    let [head, tail] = words[..] else { return None };
    // Stop words and pronouns make no query of their own.
    let stop = concat!(
        include_str!("../../sdk/words/stop_words.txt"),
        include_str!("../../sdk/words/pronouns.txt")
    );
    let stop: Vec<&str> = stop.split_whitespace().collect();
    let plain = |word: &str| {
        word.len() > 2
            && word.chars().all(char::is_alphanumeric)
            && !stop.contains(&word.to_lowercase().as_str())
    };
    let fits = single
        && row["max_clause_freq"] == 500_000
        && row["max_diff_tokens"] == 1_000
        && plain(head)
        && plain(tail)
        && !head.eq_ignore_ascii_case(tail);
    fits.then(|| {
        (
            head.to_owned(),
            tail.to_owned(),
            row["expect"]["small-s1"]["count"].as_u64().expect("a count"),
        )
    })
}

fn questions() -> Vec<Value> {
    let path = shared("data/train/nq_webq_learning_zone_llama31_8b.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// The model in `CORVER_MODEL`; where none is named, a small one with the real tokenizer, made on
/// the spot.
fn policy(folder: &Path) -> PathBuf {
    if let Some(model) = std::env::var_os("CORVER_MODEL").filter(|model| !model.is_empty()) {
        return model.into();
    }
    let model = folder.join("policy");
    let config = corver_pretrained::ModelConfig {
        family: corver_pretrained::ModelFamily::Llama,
        vocab_size: 32_000,
        hidden_size: 64,
        intermediate_size: 128,
        num_layers: 2,
        num_heads: 4,
        num_kv_heads: 2,
        head_dim: 16,
        max_positions: 1024,
        norm_eps: 1e-5,
        rope_theta: 10_000.0,
        rope_scaling: None,
        tie_embeddings: true,
    };
    let device = corver_learn::find_device(corver_core::Device::Cpu).unwrap();
    corver_learn::Model::random(config, 1, device).unwrap().save(&model).unwrap();
    fs::copy(shared("tokenizers/llama2/tokenizer.json"), model.join("tokenizer.json")).unwrap();
    fs::write(
        model.join("tokenizer_config.json"),
        json!({"chat_template": CHAT_TEMPLATE}).to_string(),
    )
    .unwrap();
    fs::write(model.join("generation_config.json"), json!({"eos_token_id": 2}).to_string())
        .unwrap();
    model
}

/// Rollouts, update and checkpoint; and an evaluation with what came out.
fn three_steps_of_training(folder: &Path, index: &str) {
    let model = policy(folder);
    let out = run_dir("real-text");
    let questions = shared("data/train/nq_webq_learning_zone_llama31_8b.json");
    let eval = shared("data/eval/nq_open_validation.json");
    let settings = [
        format!("policy.model={}", model.display()),
        format!("corpus.index={index}"),
        format!("question.train={}", questions.display()),
        format!("question.eval={}", eval.display()),
        "run.threads=2".into(),
        "question.eval_limit=4".into(),
        "question.prompts_per_step=2".into(),
        "rollout.num_generations=4".into(),
        "rollout.max_completion_length=48".into(),
        "eval.answers.max_completion_length=48".into(),
    ];
    let config =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/llama-3.1-8b-instruct.toml");
    let mut args =
        vec!["train", "--config", config.to_str().unwrap(), "--steps", "3", "--device", "cpu"];
    args.extend(["--extractor", EXTRACTOR, "--out", out.to_str().unwrap(), "--json"]);
    args.extend(settings.iter().flat_map(|setting| ["--set", setting]));
    let summary = host(&args).good().json();
    assert_eq!(summary["steps"], 3);
    assert_eq!(lines(&out.join("metrics.jsonl")).len(), 3);
    assert_eq!(lines(&out.join("traces.jsonl")).len(), 3 * 2 * 4);
    let asked: Vec<Value> = lines(&out.join("traces.jsonl"))
        .iter()
        .map(|line| line["trace"]["question"].clone())
        .collect();
    let known = self::questions();
    assert!(
        asked.iter().all(|question| known.iter().any(|record| record["question"] == *question))
    );

    let adapter = out.join("checkpoints/step-000003");
    let mut args = vec![
        "eval",
        "--config",
        config.to_str().unwrap(),
        "--device",
        "cpu",
        "--adapter",
        adapter.to_str().unwrap(),
    ];
    args.extend(["--extractor", EXTRACTOR, "--supported", "--json"]);
    args.extend(settings.iter().flat_map(|setting| ["--set", setting]));
    let evaluation = host(&args).good().json()[0].take();
    let of_run: Value =
        serde_json::from_str(&fs::read_to_string(out.join("evaluation_after.json")).unwrap())
            .unwrap();
    for figure in
        ["accuracy", "f1", "refusal_rate", "cut_off_rate", "mean_length", "counted_sentences"]
    {
        assert_eq!(evaluation[figure], of_run[figure], "{figure}");
    }
}

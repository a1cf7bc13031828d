//! What each token of some completions earns, and their advantages, by the host's own parts. The
//! Python package's tests compare theirs with the same file; CORVER_WRITE=1 writes it anew.

use std::path::Path;

use corver_core::{Question, Rollout, advantage};
use corver_pretrained::{ChatTokenizer, Decoded};
use corver_reward::config::RewardConfig;
use corver_reward::{Scorer, config, folders, parts};
use corver_settings::Layers;
use serde_json::{Value, json};

#[test]
fn token_returns_match_python_fixture() {
    folders::set_host_program(env!("CARGO_BIN_EXE_corver-host").into());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python/tests/checked.json");
    let rows: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let settings = Layers::default().settings().unwrap();
    let (settings, config) = config::resolve::<RewardConfig>(settings).unwrap();
    let tokenizer = ChatTokenizer::load(&parts::unpack_demo().unwrap().policy).unwrap();

    let questions: Vec<Question> = rows.iter().map(question).collect();
    let rollout = |(question, row): (usize, &Value)| {
        let tokens: Vec<u32> = serde_json::from_value(row["tokens"].clone()).unwrap();
        let Decoded { text, token_spans } =
            tokenizer.decode_as(&tokens, settings.reward.compatibility).unwrap();
        Rollout {
            question,
            log_probs: vec![0.0; tokens.len()],
            tokens,
            text,
            token_spans,
            finished: true,
        }
    };
    let rollouts: Vec<Rollout> = rows.iter().enumerate().map(rollout).collect();
    let scored =
        Scorer::open(&config, &settings).unwrap().score(&rollouts, &questions, None).unwrap();
    let returns: Vec<Vec<f64>> = scored.completions.into_iter().map(|one| one.returns).collect();
    let advantages = advantage::normalize(&returns, 4, &settings.advantage);

    let mut now = rows.clone();
    for (row, (returns, advantages)) in now.iter_mut().zip(returns.iter().zip(&advantages)) {
        row["returns"] = json!(returns);
        row["advantages"] = json!(advantages);
    }
    if std::env::var_os("CORVER_WRITE").is_some() {
        let lines: Vec<String> = now.iter().map(Value::to_string).collect();
        std::fs::write(&file, format!("[\n{}\n]\n", lines.join(",\n"))).unwrap();
    }
    assert_eq!(rows, now, "the reward has changed; CORVER_WRITE=1 writes {} anew", file.display());
}

fn question(row: &Value) -> Question {
    let golds = serde_json::from_value(row["answers"].clone()).unwrap();
    Question {
        question: row["question"].as_str().unwrap().to_owned(),
        golds,
        ..Question::default()
    }
}

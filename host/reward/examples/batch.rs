//! Measures how long the host takes for the reward of a step: `batch CORVER_HOST TRACES IDS`.
//! TRACES is traces.jsonl of a run of the demo. The token ids of its completions are written to IDS,
//! so that another program can score the same batch. Prints seconds.
#![allow(clippy::print_stdout)] // the output of the example

use std::path::PathBuf;

use anyhow::{Context, Result};
use corver_core::{Question, Rollout, Trace};
use corver_pretrained::{Decoded, TextTokenizer};
use corver_reward::config::RewardConfig;
use corver_reward::{Scorer, config, folders, parts};
use corver_settings::Layers;
use serde_json::Value;

fn main() -> Result<()> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [corver_host, traces, ids] = arguments.as_slice() else {
        anyhow::bail!("usage: batch CORVER_HOST TRACES IDS");
    };
    folders::set_host_program(corver_host.clone());

    let (settings, config) = config::resolve::<RewardConfig>(Layers::default().settings()?)?;
    let tokenizer = TextTokenizer::open(&parts::unpack_demo()?.policy)?;
    let text =
        std::fs::read_to_string(traces).with_context(|| format!("reading {}", traces.display()))?;

    let mut rows: Vec<Vec<u32>> = Vec::new();
    let mut rollouts = Vec::new();
    let mut questions = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let record: Value = serde_json::from_str(line)?;
        let trace: Trace = serde_json::from_value(record["trace"].clone())?;
        let tokens = tokenizer.encode(&trace.completion)?;
        let Decoded { text, token_spans } = tokenizer.decode_with_spans(&tokens)?;
        rollouts.push(Rollout {
            question: index,
            tokens: tokens.clone(),
            log_probs: Vec::new(),
            text,
            token_spans,
            finished: true,
        });
        questions.push(Question { question: trace.question, ..Question::default() });
        rows.push(tokens);
    }
    std::fs::write(ids, serde_json::to_string(&rows)?)?;
    println!(
        "{}",
        Scorer::open(&config, &settings)?.score(&rollouts, &questions, None)?.seconds.reward
    );
    Ok(())
}

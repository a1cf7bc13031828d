//! What the host pays for the reward of a step: `batch CORVER_HOST TRACES IDS`. TRACES is
//! traces.jsonl of a run of the demo; the token ids of its completions go into IDS, for another
//! program to score. Prints the seconds.
#![allow(clippy::print_stdout)] // how an example answers

use std::path::PathBuf;

use anyhow::{Context, Result};
use corver_core::{Question, Rollout, Trace};
use corver_pretrained::{Decoded, TextTokenizer};
use corver_reward::config::RewardConfig;
use corver_reward::{Scorer, config, folders, parts};
use corver_settings::Layers;
use serde_json::Value;

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let mut next = |what: &str| arguments.next().with_context(|| format!("{what} is missing"));
    folders::set_program(next("CORVER_HOST")?);
    let (traces, ids) = (next("TRACES")?, next("IDS")?);

    let (settings, config) = config::resolve::<RewardConfig>(Layers::default().settings()?)?;
    let tokenizer = TextTokenizer::open(&parts::demo()?.policy)?;
    let text = std::fs::read_to_string(&traces)
        .with_context(|| format!("reading {}", traces.display()))?;
    let trace =
        |line: &str| serde_json::from_value(serde_json::from_str::<Value>(line)?["trace"].take());
    let traces: Vec<Trace> = text.lines().map(trace).collect::<Result<_, _>>()?;
    let rows: Vec<Vec<u32>> =
        traces.iter().map(|trace| tokenizer.encode(&trace.completion)).collect::<Result<_, _>>()?;
    std::fs::write(&ids, serde_json::to_string(&rows)?)?;

    let rollout = |(question, tokens): (usize, &Vec<u32>)| {
        let Decoded { text, token_spans } = tokenizer.decode_with_spans(tokens)?;
        Ok(Rollout {
            question,
            tokens: tokens.clone(),
            log_probs: Vec::new(),
            text,
            token_spans,
            finished: true,
        })
    };
    let rollouts: Vec<Rollout> = rows.iter().enumerate().map(rollout).collect::<Result<_>>()?;
    let question = |trace: &Trace| Question {
        question: trace.question.clone(),
        golds: Vec::new(),
        ..Question::default()
    };
    let questions: Vec<Question> = traces.iter().map(question).collect();
    println!("{}", Scorer::open(&config, &settings)?.score(&rollouts, &questions)?.seconds.reward);
    Ok(())
}

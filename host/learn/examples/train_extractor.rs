//! Trains a model as an extractor, all weights in f32: `train_extractor MODEL GOLD.jsonl PROMPT.txt OUT
//! STEPS`.
//!
//! A line of GOLD.jsonl is `{"sentence": …, "triplets": [[head, relation, tail], …]}`. PROMPT.txt
//! contains `{sentence}`. OUT is a folder for the setting `extract.model`.
#![allow(clippy::print_stdout)] // the output of the program

use std::error::Error;
use std::path::Path;

use corver_core::{Device, Precision};
use corver_learn::{Example, FitSettings, Model, find_device, fit};
use corver_pretrained::{StopTokens, read_tokenizer};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

type AnyError = Box<dyn Error + Send + Sync>;

const BATCH: usize = 8;

fn main() -> Result<(), AnyError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model_folder, gold, prompt, out, steps] = arguments.as_slice() else {
        return Err("usage: train_extractor MODEL GOLD.jsonl PROMPT.txt OUT STEPS".into());
    };
    let model_folder = Path::new(model_folder);
    let out = Path::new(out);
    let prompt = std::fs::read_to_string(prompt)?;
    let (before, after) = prompt.split_once("{sentence}").ok_or("the prompt has no {sentence}")?;
    let tokenizer = read_tokenizer(&model_folder.join("tokenizer.json"))?;
    let stop = StopTokens::read(&tokenizer, model_folder)?.end;
    let encode = |text: &str| Ok::<_, AnyError>(tokenizer.encode(text, false)?.get_ids().to_vec());

    let mut examples = Vec::new();
    for line in std::fs::read_to_string(gold)?.lines().filter(|line| !line.trim().is_empty()) {
        let line: Value = serde_json::from_str(line)?;
        let sentence = line["sentence"].as_str().ok_or("a line without a sentence")?;
        let mut reply = encode(&line["triplets"].to_string())?;
        reply.push(stop);
        examples.push(Example::new(&encode(&format!("{before}{sentence}{after}"))?, &reply));
    }
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let batch = |_| {
        examples.shuffle(&mut rng);
        Ok::<_, AnyError>(examples.iter().take(BATCH).cloned().collect())
    };
    let mut model = Model::load(model_folder, Precision::F32, find_device(Device::Auto)?)?;
    let settings =
        FitSettings { steps: steps.parse()?, learning_rate: 5e-5, ..FitSettings::default() };
    let losses = fit(&mut model, &settings, batch)?;
    println!("loss {:.3} → {:.3}", losses[0], losses[losses.len() - 1]);

    model.save(out)?;
    for name in ["tokenizer.json", "tokenizer_config.json", "generation_config.json"] {
        if model_folder.join(name).exists() {
            std::fs::copy(model_folder.join(name), out.join(name))?;
        }
    }
    // A JSON string is a TOML string too.
    let stop = tokenizer.id_to_token(stop).ok_or("a stop token without a name")?;
    let [before, after, stop] = [before, after, stop.as_str()].map(|text| json!(text));
    let settings = format!("prompt_prefix = {before}\nprompt_suffix = {after}\nstop = [{stop}]\n");
    Ok(std::fs::write(out.join("extractor.toml"), settings)?)
}

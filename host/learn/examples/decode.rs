//! Times greedy decoding with a model folder.
//!
//! ```sh
//! decode FOLDER ROWS TOKENS TURNS DEVICE PRECISION
//! ```
//!
//! It prints a line of JSON with the seconds of each turn and the token ids of the last one. Every four
//! rows continue one prompt, like the samples of a question.
#![allow(clippy::print_stdout)] // the output of the program

use std::path::Path;
use std::time::Instant;

use corver_core::{Precision, Sampling};
use corver_learn::{Model, find_device, sample::sample};

const SAMPLES: usize = 4;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, rows, tokens, turns, device, precision] = &arguments[..] else {
        panic!("usage: decode FOLDER ROWS TOKENS TURNS DEVICE PRECISION")
    };
    let [rows, tokens, turns] =
        [rows, tokens, turns].map(|number| number.parse::<usize>().expect("a number"));
    let device = find_device(device.parse().expect("cpu, cuda or cuda:N")).expect("the device");
    let precision: Precision =
        serde_json::from_value(precision.as_str().into()).expect("auto, f32 or bf16");
    let model = Model::load(Path::new(folder), precision, device).expect("a model folder");
    let vocab = model.config().vocab_size as u32;
    let prompts: Vec<Vec<u32>> = (0..rows / SAMPLES)
        .map(|p| (0..24 + p % 8).map(|t| (p * 7919 + t * 104_729) as u32 % vocab).collect())
        .collect();
    let slices: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
    let sampling = Sampling { num_generations: SAMPLES, ..Sampling::greedy(tokens) };
    let mut seconds = Vec::new();
    let mut ids = Vec::new();
    for _ in 0..turns {
        let start = Instant::now();
        let completions =
            sample(&model, &slices, &sampling, &[], 0).expect("the prompts fit the model");
        seconds.push(start.elapsed().as_secs_f64());
        ids = completions.into_iter().map(|completion| completion.tokens).collect();
    }
    println!("{}", serde_json::json!({ "prompts": prompts, "seconds": seconds, "tokens": ids }));
}

//! Building an index of billions of tokens within a budget of memory: `make bench-scale`.
//!
//! `CORVER_SCALE_TOKENS` says of how many; `CORVER_SCALE_MEMORY` (default 8G) is the budget;
//! everything is written to `CORVER_SCALE_DIR` (default `target/bench/scale`). The text is made up,
//! the same one in every run, and has pairs of names planted in it, so that it is known what
//! counting them must give. The text and the index stay, and are used again by the next run with
//! the same settings. The argument `text` stops after the text. Last, a step's pairs are counted in
//! the cold index, next to the official engine if `CORVER_PEER_PYTHON` names the Python that has
//! it. Results go to `target/bench/scale.json`.
#![allow(clippy::print_stdout)] // the table is what the command is for

mod build;
mod cold;
mod counts;
mod document;
#[path = "../peer/forget.rs"]
mod forget;
mod lexicon;
#[path = "../peer/official.rs"]
mod official;
mod pairs;
mod random;
mod report;
mod shape;
mod text;
mod vocabulary;

use std::path::{Path, PathBuf};

use report::Report;
use text::{Folder, Written};

fn main() {
    let Some(tokens) = std::env::var("CORVER_SCALE_TOKENS").ok() else {
        return println!(
            "skipped: CORVER_SCALE_TOKENS is not set; `make bench-scale` builds an index of billions of tokens"
        );
    };
    let tokens: u64 = tokens.parse().expect("CORVER_SCALE_TOKENS is a number");
    let bench = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("bench");
    let folder = Folder::new(
        std::env::var_os("CORVER_SCALE_DIR").map_or_else(|| bench.join("scale"), PathBuf::from),
    );
    let memory = bytes(&std::env::var("CORVER_SCALE_MEMORY").unwrap_or_else(|_| "8G".to_owned()));
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    match arguments.first().map(String::as_str) {
        Some(build::BUILD) => println!("{}", json(&build::build_here(&folder, tokens, memory))),
        Some(build::VERIFY) => println!("{}", json(&build::verify_here(&folder))),
        Some(way @ (cold::BATCH | cold::ONE_BY_ONE)) => {
            println!("{}", json(&cold::ask_here(&folder, way)))
        }
        Some("text") => describe(&text::write(&folder, tokens)),
        Some(other) => panic!("{other} is no stage"),
        None => {
            let written = text::write(&folder, tokens);
            describe(&written);
            let built = build::build_index(&folder, tokens, memory);
            assert!(built.tokens >= tokens, "the text has {} tokens", built.tokens);
            let checked = build::verify_index();
            let counted = counts::count(&folder);
            let python = std::env::var_os("CORVER_PEER_PYTHON").map(PathBuf::from);
            let cold = cold::compare(&folder, written.documents, python.as_deref());
            let all_right =
                cold.alike && counted.iter().all(|counted| counted.right == counted.pairs);
            Report { memory, written, built, checked, counted, cold }
                .print_and_save(&bench.join("scale.json"));
            assert!(all_right, "some counts are wrong");
        }
    }
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("plain fields")
}

/// `8G`, or a number of bytes.
fn bytes(text: &str) -> u64 {
    let (number, unit) = match text.strip_suffix(['G', 'g']) {
        Some(number) => (number, 1 << 30),
        None => (text, 1),
    };
    number.parse::<u64>().expect("CORVER_SCALE_MEMORY is like 8G") * unit
}

fn describe(written: &Written) {
    let sample = &written.sample;
    let frequent: Vec<String> =
        sample.most_frequent.iter().map(|(token, count)| format!("{token} {count}")).collect();
    println!(
        "The first {} documents: {:.2} tokens per word, {:.0} tokens per document, median {}, longest {}; {} different \
         tokens; most frequent: {}\n",
        sample.documents,
        sample.tokens_per_word,
        sample.mean_tokens,
        sample.median_tokens,
        sample.longest_tokens,
        sample.distinct_tokens,
        frequent.join(", ")
    );
}

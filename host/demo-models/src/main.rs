//! Makes the demo's models anew: the policy, which knows the world imperfectly, and the extractor,
//! which reads its sentences.

mod extractor;
mod policy;
mod training;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use corver_inference::extract::{Device, OnnxExtractor, RuntimeLibrary};
use serde::Serialize;
use tracing_subscriber::EnvFilter;

use crate::training::Training;

/// Trains the two models of corver-host's built-in demo from nothing and prints how good they are,
/// as JSON.
///
/// The shipped files, in host/demo/assets/policy and host/demo/assets/extractor, were made with the
/// default options. Whoever changes the world or its wording makes both anew; the tests say when
/// that is needed. Everything runs on the CPU. RUST_LOG=corver_learn=debug shows the loss of every
/// step.
#[derive(Debug, Parser)]
#[command(name = "corver-demo-models", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The policy and its tokenizer, as a Hugging Face folder.
    ///
    /// Writes config.json, generation_config.json, model.safetensors, tokenizer.json and
    /// tokenizer_config.json. Takes less than 10 minutes on two cores.
    Policy(Options),
    /// The extractor and its tokenizer.
    ///
    /// Writes a Hugging Face folder with an extractor.toml, then measures it on 5,000 sentences
    /// that training never shows. Takes about 20 minutes on two cores.
    Extractor(Options),
}

#[derive(Debug, Args)]
struct Options {
    /// Folder to write to; made where it does not exist.
    out: PathBuf,
    /// Optimiser steps. Default: as many as the shipped model took.
    #[arg(long)]
    steps: Option<usize>,
    /// Decides the examples, their order and the initial weights. Default: the shipped model's.
    #[arg(long)]
    seed: Option<u64>,
}

impl Options {
    fn training(&self, shipped: Training) -> Training {
        Training {
            seed: self.seed.unwrap_or(shipped.seed),
            steps: self.steps.unwrap_or(shipped.steps),
            ..shipped
        }
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_env_filter(
            EnvFilter::try_from_default_env()
                .unwrap_or_else(|_| EnvFilter::new("corver_demo_models=info")),
        )
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .without_time()
        .init();
    match arguments.command {
        Command::Policy(options) => make_policy(&options.out, &options.training(policy::SHIPPED)),
        Command::Extractor(options) => {
            make_extractor(&options.out, &options.training(extractor::SHIPPED))
        }
    }
}

fn make_policy(out: &Path, training: &Training) -> Result<()> {
    let quality = policy::make(&corver_demo::demo_world(), out, training)
        .with_context(|| format!("making the policy in {}", out.display()))?;
    print(&quality)
}

fn make_extractor(out: &Path, training: &Training) -> Result<()> {
    extractor::make(out, training)
        .with_context(|| format!("making the extractor in {}", out.display()))?;
    let mut extractor = OnnxExtractor::open(
        out,
        corver_inference::extract::ExtractOptions::default(),
        Device::Cpu,
        &RuntimeLibrary::find(None)?,
    )?;
    print(&extractor::measure(&mut extractor, &corver_demo::demo_world(), 5000, 1)?)
}

fn print(quality: &impl Serialize) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{}", serde_json::to_string(quality)?)?)
}

//! Trains the demo's models: the policy, which knows the world imperfectly, and the extractor, which
//! reads its sentences.

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

/// Train the two models of corver-host's built-in demo from scratch, and print their quality as JSON.
///
/// The shipped files, in host/demo/assets/policy and host/demo/assets/extractor, are results of the
/// default options. After a change of the demo's world or wording, train both again; the tests fail
/// until then. Training runs on the CPU. RUST_LOG=corver_learn=debug logs the loss of every step.
#[derive(Debug, Parser)]
#[command(name = "corver-demo-models", version)]
struct DemoModelsArguments {
    #[command(subcommand)]
    model: DemoModel,
}

#[derive(Debug, Subcommand)]
enum DemoModel {
    /// Train the policy and its tokenizer; write a Hugging Face folder.
    ///
    /// Writes config.json, generation_config.json, model.safetensors, tokenizer.json and
    /// tokenizer_config.json. Takes less than 10 minutes on two cores.
    Policy(TrainingOptions),
    /// Train the extractor and its tokenizer; write a Hugging Face folder with an extractor.toml.
    ///
    /// Then measures the extractor on 5,000 sentences that are not in the training data. Takes about
    /// 20 minutes on two cores.
    Extractor(TrainingOptions),
}

#[derive(Debug, Args)]
struct TrainingOptions {
    /// Folder to write to; created if it does not exist.
    out: PathBuf,
    /// Number of optimiser steps. Default: that of the shipped model.
    #[arg(long)]
    steps: Option<usize>,
    /// Seed of the examples, their order and the initial weights. Default: that of the shipped model.
    #[arg(long)]
    seed: Option<u64>,
}

impl TrainingOptions {
    fn training(&self, shipped: Training) -> Training {
        Training {
            seed: self.seed.unwrap_or(shipped.seed),
            steps: self.steps.unwrap_or(shipped.steps),
            ..shipped
        }
    }
}

fn main() -> Result<()> {
    let arguments = DemoModelsArguments::parse();
    tracing_subscriber::fmt()
        .with_env_filter(
            EnvFilter::try_from_default_env()
                .unwrap_or_else(|_| EnvFilter::new("corver_demo_models=info")),
        )
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .without_time()
        .init();
    match arguments.model {
        DemoModel::Policy(options) => {
            train_policy(&options.out, &options.training(policy::SHIPPED))
        }
        DemoModel::Extractor(options) => {
            train_extractor(&options.out, &options.training(extractor::SHIPPED))
        }
    }
}

fn train_policy(out: &Path, training: &Training) -> Result<()> {
    let quality = policy::train_and_measure(&corver_demo::demo_world(), out, training)
        .with_context(|| format!("failed to train the policy in {}", out.display()))?;
    print(&quality)
}

fn train_extractor(out: &Path, training: &Training) -> Result<()> {
    extractor::train(out, training)
        .with_context(|| format!("failed to train the extractor in {}", out.display()))?;
    let mut extractor = Extractor::open(
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

//! The corver-host binary: parses, wires the parts together and prints. What it wires lives in the
//! other crates.
//!
//! ```text
//! args ─▶ settings ─▶ command
//! ```
//!
//! `args` is the command line as clap reads it; `settings` puts it over the configuration files; a
//! command has them resolved and opened by `corver_reward`, and puts the parts to work. `policy`
//! opens the one part that needs libtorch, `engine` the server that may draw its completions.

mod args;
mod command;
mod engine;
#[cfg(feature = "torch")]
mod engine_policy;
mod index_folder;
mod interrupt;
mod output;
#[cfg_attr(not(feature = "torch"), path = "no_policy.rs")]
mod policy;
mod questions;
mod recording;
mod resumed;
mod scoring;
mod server;
mod settings;
mod tokenizer;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use corver_core::error_chain_with;
use corver_reward::config::Problems;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::args::{Arguments, Command};

/// The message says why.
const FAILED: u8 = 1;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let level = arguments.log_level();
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::builder()
                .with_default_directive(level.into())
                .from_env_lossy(),
        )
        .with_writer(|| output::Log)
        .with_ansi(std::io::stderr().is_terminal())
        // Not `.without_time()` here: it would take the durations of the spans too.
        .event_format(tracing_subscriber::fmt::format().without_time().with_target(false))
        .with_span_events(FmtSpan::CLOSE) // with -v: how long each stage took
        .init();
    if let Err(error) = corver_corpus::name_lost_files() {
        tracing::warn!(%error, "an index file that is truncated while it is in use will not be named");
    }
    match run(arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {}", explain(&error));
            ExitCode::from(FAILED)
        }
    }
}

/// What was being done, then why it failed, outermost first, on one line, or a line for each
/// problem of a configuration.
fn explain(error: &anyhow::Error) -> String {
    const ALIGNED: &str = "\n       "; // behind "error: "
    let shown = |cause: &(dyn std::error::Error + 'static)| match cause.downcast_ref() {
        Some(problems) => Problems::lines(problems)
            .map(|line| output::escaped(&line))
            .collect::<Vec<_>>()
            .join(ALIGNED),
        None => output::escaped(&cause.to_string()),
    };
    error_chain_with(error.as_ref(), shown)
}

fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let json = arguments.json;
    match arguments.command {
        #[cfg(feature = "torch")]
        Command::Train(args) => command::train::run(&args, json)?,
        #[cfg(feature = "torch")]
        Command::Sft(args) => command::sft::run(&args, json)?,
        #[cfg(feature = "torch")]
        Command::Compare(args) => command::compare::run(&args, json)?,
        #[cfg(feature = "torch")]
        Command::Merge(args) => command::merge::run(&args, json)?,
        #[cfg(not(feature = "torch"))]
        Command::Train(_) | Command::Sft(_) | Command::Compare(_) | Command::Merge(_) => {
            anyhow::bail!(policy::NO_LIBTORCH)
        }
        Command::Filter(args) => command::filter::run(&args, json)?,
        Command::Data(args) => command::data::run(&args, json)?,
        Command::Eval(args) => command::eval::run(&args, json)?,
        Command::Judge(args) => command::judge::run(&args, json)?,
        Command::Calibrate(args) => command::calibrate::run(&args, json)?,
        Command::Score(args) => command::score::run(&args, json)?,
        Command::Check(args) => return command::check::run(&args, json),
        Command::Serve(args) => command::serve::run(&args, json)?,
        Command::Report(args) => command::report::run(&args, json)?,
        Command::Explain(args) => command::explain::run(&args, json)?,
        Command::Index(args) => command::index::run(&args, json)?,
        Command::Extract(args) => command::extract::run(&args, json)?,
        Command::Plugin(args) => command::plugin::run(&args, json)?,
        Command::Demo(args) => command::demo::run(&args, json)?,
        Command::Settings => command::settings::run(json)?,
        Command::Doctor => command::doctor::run(json)?,
        Command::CompileRule { limits } => return Ok(corver_rules::compile_as_child(&limits)),
        Command::RenderPrompts => return Ok(corver_pretrained::render_as_child()),
    }
    Ok(ExitCode::SUCCESS)
}

//! The corver-host binary: parses the command line, opens the parts of a command, and prints
//! results. The work is done in the other crates.
//!
//! ```text
//! args ─▶ settings ─▶ command
//! ```
//!
//! `args` is the command line as clap parses it; `settings` merges it with the configuration files;
//! a command resolves and opens its parts with `corver_reward`. `policy` opens the only part that
//! needs libtorch, `engine` the inference server that may sample in its place.

mod args;
mod check_request;
mod command;
mod engine;
#[cfg(feature = "torch")]
mod engine_policy;
mod files;
mod index_folder;
mod interrupt;
mod output;
#[cfg_attr(not(feature = "torch"), path = "no_policy.rs")]
mod policy;
mod questions;
mod recording;
mod resumed;
mod scoring;
#[cfg(feature = "torch")]
mod screen;
mod server;
mod settings;
mod tokenizer;

use std::process::ExitCode;

use clap::Parser;
use corver_core::error_chain_with;
use corver_reward::config::Problems;
use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::args::{Cli, CliCommand};

/// Exit code of a command that failed.
const FAILED: u8 = 1;
/// Exit code of a command line that is wrong, as clap has it.
const USAGE_ERROR: u8 = 2;

fn main() -> ExitCode {
    // JSON and settings files cannot hold such a path.
    if let Some(argument) = std::env::args_os().skip(1).find(|one| one.to_str().is_none()) {
        let shown = output::escaped(&argument.to_string_lossy());
        output::error_line(&format!("error: the argument {shown} is not UTF-8; rename the file"));
        return ExitCode::from(USAGE_ERROR);
    }
    let arguments = Cli::parse();
    let mut filter = tracing_subscriber::EnvFilter::builder()
        .with_default_directive(arguments.log_level().into())
        .from_env_lossy();
    // ONNX Runtime warns that nodes of a graph on a GPU run on the CPU, as they should; -v shows it.
    if arguments.log_level() < LevelFilter::INFO {
        filter = filter.add_directive("ort=error".parse().expect("a valid directive"));
    }
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| output::LogWriter)
        .with_ansi(output::has_colours(&std::io::stderr()))
        // Not `.without_time()` here: it would take the durations of the spans too.
        .event_format(tracing_subscriber::fmt::format().without_time().with_target(false))
        .with_span_events(FmtSpan::CLOSE) // with -v: how long each stage took
        .finish()
        // A directive of `filter` would raise the level of these messages where it is lower.
        .with(filter_fn(|event| !has_exchange(event.target(), *event.level())))
        .init();
    if let Err(error) = corver_corpus::report_truncated_files() {
        tracing::warn!(%error, "errors about index files truncated while in use will not name them");
    }
    match run(arguments) {
        Ok(code) => code,
        Err(error) => {
            output::error_line(&format!("error: {}", explain(&error)));
            ExitCode::from(FAILED)
        }
    }
}

/// Returns true for log messages that have the bytes of requests and replies, keys included: the
/// trace messages of `ureq` and `ureq_proto`.
fn has_exchange(target: &str, level: Level) -> bool {
    level == Level::TRACE && target.starts_with("ureq")
}

/// Formats an error with its causes, outermost first, on one line; a configuration error has a line
/// for each problem.
fn explain(error: &anyhow::Error) -> String {
    error_chain_with(error.as_ref(), explain_cause)
}

fn explain_cause(cause: &(dyn std::error::Error + 'static)) -> String {
    const ALIGNED: &str = "\n       "; // as wide as "error: "
    if let Some(problems) = cause.downcast_ref::<Problems>() {
        let lines: Vec<String> = problems.lines().map(|line| output::escaped(&line)).collect();
        return lines.join(ALIGNED);
    }
    let text = cause.to_string();
    if let Some(error) = cause.downcast_ref::<toml::de::Error>() {
        // The first line names the position. The others quote the file.
        let position = text.lines().next().unwrap_or_default();
        return output::escaped(&format!("{position}: {}", error.message()));
    }
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    output::escaped(&lines.join(" "))
}

fn run(arguments: Cli) -> anyhow::Result<ExitCode> {
    let json = arguments.json;
    match arguments.command {
        #[cfg(feature = "torch")]
        CliCommand::Train(args) => command::train::run(&args, json)?,
        #[cfg(feature = "torch")]
        CliCommand::Sft(args) => command::sft::run(&args, json)?,
        #[cfg(feature = "torch")]
        CliCommand::Compare(args) => command::compare::run(&args, json)?,
        #[cfg(feature = "torch")]
        CliCommand::Merge(args) => command::merge::run(&args, json)?,
        #[cfg(not(feature = "torch"))]
        CliCommand::Train(_)
        | CliCommand::Sft(_)
        | CliCommand::Compare(_)
        | CliCommand::Merge(_) => {
            anyhow::bail!(policy::NO_LIBTORCH)
        }
        CliCommand::Filter(args) => command::filter::run(&args, json)?,
        CliCommand::Data(args) => command::data::run(&args, json)?,
        CliCommand::Eval(args) => command::eval::run(&args, json)?,
        CliCommand::Judge(args) => command::judge::run(&args, json)?,
        CliCommand::Calibrate(args) => command::calibrate::run(&args, json)?,
        CliCommand::Score(args) => command::score::run(&args, json)?,
        CliCommand::Check(args) => return command::check::run(&args, json),
        CliCommand::Serve(args) => command::serve::run(&args, json)?,
        CliCommand::Mcp(args) => command::mcp::run(&args)?,
        CliCommand::Report(args) => command::report::run(&args, json)?,
        CliCommand::Explain(args) => command::explain::run(&args, json)?,
        CliCommand::Index(args) => command::index::run(&args, json)?,
        CliCommand::Extract(args) => command::extract::run(&args, json)?,
        CliCommand::Plugin(args) => command::plugin::run(&args, json)?,
        CliCommand::Demo(args) => command::demo::run(&args, json)?,
        CliCommand::Settings => command::settings::run(json)?,
        CliCommand::Doctor => command::doctor::run(json)?,
        CliCommand::CompileRule { limits } => return Ok(corver_rules::compile_as_child(&limits)),
        CliCommand::RenderPrompts => return Ok(corver_pretrained::render_as_child()),
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_trace_messages_of_http_client_have_exchanges() {
        assert!(has_exchange("ureq::unversioned::transport", Level::TRACE));
        assert!(has_exchange("ureq_proto::client", Level::TRACE));
        assert!(!has_exchange("ureq_proto::client", Level::DEBUG));
        assert!(!has_exchange("corver_http::client", Level::TRACE));
    }
}

//! `corver-host plugin`: one file per subcommand.

mod bench;
mod build;
mod check;
mod list;
mod new;
mod other_work;
mod play;
mod run;

use anyhow::Result;

use crate::args::{PluginArgs, PluginCommand};

pub fn run(args: &PluginArgs, json: bool) -> Result<()> {
    match &args.command {
        PluginCommand::New(args) => new::run(args, json),
        PluginCommand::Build { dir } => build::run(dir, json),
        PluginCommand::Check(args) => check::run(args, json),
        PluginCommand::Run(args) => run::run(args, json),
        PluginCommand::Bench(args) => bench::run(args, json),
        PluginCommand::Play(args) => play::run(args, json),
        PluginCommand::List => list::run(json),
    }
}

//! `corver-host index`: one file per subcommand.

mod adopt;
mod build;
pub mod count;
mod info;
mod pack;
mod passages;
mod search;
mod serve;
mod stage_bar;
mod verify;

use anyhow::Result;
use corver_corpus::CnfOptions;

use crate::args::{IndexArgs, IndexCommand};

/// Returns the window that document lengths are compared with, tokens.
fn default_window() -> u64 {
    CnfOptions::default().max_diff_tokens
}

pub fn run(args: &IndexArgs, json: bool) -> Result<()> {
    match &args.command {
        IndexCommand::Adopt(args) => adopt::run(args, json),
        IndexCommand::Build(args) => build::run(args, json),
        IndexCommand::Count(args) => count::run(args, json),
        IndexCommand::Serve(args) => serve::run(args, json),
        IndexCommand::Info(args) => info::run(args, json),
        IndexCommand::Pack(args) => pack::run(args, json),
        IndexCommand::Passages(args) => passages::run(args, json),
        IndexCommand::Search(args) => search::run(args, json),
        IndexCommand::Verify(args) => verify::run(args, json),
    }
}

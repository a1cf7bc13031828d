//! `corver-host index`: one file per subcommand.

mod adopt;
mod build;
pub mod count;
mod info;
mod passages;
mod search;
mod serve;
mod stage_bar;
mod verify;

use anyhow::Result;

use crate::args::{IndexArgs, IndexCommand};

/// Default of `corpus.max_diff_tokens`.
const DEFAULT_WINDOW: u64 = 1_000;

pub fn run(args: &IndexArgs, json: bool) -> Result<()> {
    match &args.command {
        IndexCommand::Adopt(args) => adopt::run(args, json),
        IndexCommand::Build(args) => build::run(args, json),
        IndexCommand::Count(args) => count::run(args, json),
        IndexCommand::Serve(args) => serve::run(args, json),
        IndexCommand::Info(args) => info::run(args, json),
        IndexCommand::Passages(args) => passages::run(args, json),
        IndexCommand::Search(args) => search::run(args, json),
        IndexCommand::Verify(args) => verify::run(args, json),
    }
}

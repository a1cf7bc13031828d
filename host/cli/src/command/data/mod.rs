//! `corver-host data`: prepares question sets.

mod demonstrations;
mod evidence;
mod pool;

use anyhow::Result;

use crate::args::{DataArgs, DataCommand};

pub fn run(args: &DataArgs, json: bool) -> Result<()> {
    match &args.command {
        DataCommand::Pool(args) => pool::run(args, json),
        DataCommand::Evidence(args) => evidence::run(args, json),
        DataCommand::Demonstrations(args) => demonstrations::run(args, json),
    }
}

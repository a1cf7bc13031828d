//! `corver-host calibrate`: measures how well counts and rewards predict truth.

mod audit;
mod corpus;
mod draw;
mod read;
pub mod saved;

use anyhow::Result;

use crate::args::{CalibrateArgs, CalibrateCommand};

pub fn run(args: &CalibrateArgs, json: bool) -> Result<()> {
    match &args.command {
        CalibrateCommand::Draw(args) => draw::run(args, json),
        CalibrateCommand::Read(args) => read::run(args, json),
        CalibrateCommand::Audit(args) => audit::run(args, json),
        CalibrateCommand::Corpus(args) => corpus::run(args, json),
    }
}

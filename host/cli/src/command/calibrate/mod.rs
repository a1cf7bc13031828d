//! `corver-host calibrate`: measures how well counts and rewards predict truth.

mod audit;
mod draw;
mod read;

use anyhow::Result;
use corver_analysis::calibrate::CorrectShare;

use crate::args::{CalibrateArgs, CalibrateCommand};
use crate::output;

pub fn run(args: &CalibrateArgs, json: bool) -> Result<()> {
    match &args.command {
        CalibrateCommand::Draw(args) => draw::run(args, json),
        CalibrateCommand::Read(args) => read::run(args, json),
        CalibrateCommand::Audit(args) => audit::run(args, json),
    }
}

/// Returns number, share and confidence interval as table cells.
pub fn cells(share: &CorrectShare) -> [String; 3] {
    let CorrectShare { n, share, low, high, .. } = *share;
    [n.to_string(), output::percent(share), format!("{:.1} to {:.1}", 100.0 * low, 100.0 * high)]
}

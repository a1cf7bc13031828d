//! `corver-host report`: writes a page about one or several runs.

use std::path::{Path, PathBuf};

use anyhow::Result;
use corver_report::{LoadedRun, page, report};
use serde_json::json;

use crate::args::ReportArgs;
use crate::output;

/// Default file name of a report.
const REPORT: &str = "report.html";

pub fn run(args: &ReportArgs, json: bool) -> Result<()> {
    let written = write(&args.runs, args.out.as_deref())?;
    if json {
        return output::json(&json!({ "report": written, "runs": args.runs }));
    }
    output::line(format_args!("the report is in {}", written.display()));
    Ok(())
}

/// Writes the page about these runs, and returns its path.
pub fn write(folders: &[PathBuf], out: Option<&Path>) -> Result<PathBuf> {
    let runs =
        folders.iter().map(|folder| LoadedRun::open(folder)).collect::<Result<Vec<_>, _>>()?;
    let out = match (out, folders) {
        (Some(out), _) => out.to_owned(),
        (None, [folder]) => folder.join(REPORT),
        (None, _) => REPORT.into(),
    };
    page::save(&out, &report(runs)?)?;
    Ok(out)
}

//! Files and tables of a calibration.

use std::path::Path;

use anyhow::{Context, Result};
use corver_analysis::calibrate::{Calibration, CorrectShare, Suggestion};
use corver_report::page;
use serde::Serialize;

use crate::files;
use crate::output;

/// File with the results.
const CALIBRATION: &str = "calibration.json";
/// Page with the plots.
const PAGE: &str = "calibration.html";

/// Returns number, share and confidence interval as table cells.
pub fn cells(share: &CorrectShare) -> [String; 3] {
    let CorrectShare { n, share, low, high, .. } = *share;
    [n.to_string(), output::percent(share), format!("{:.1} to {:.1}", 100.0 * low, 100.0 * high)]
}

/// Returns name and text of a configuration file for each suggestion. `origin` describes the labels.
pub fn config_files(suggestions: &[Suggestion], origin: &str) -> Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    for suggestion in suggestions {
        let name = Path::new(&suggestion.rule.plugin).with_extension("toml").display().to_string();
        let settings = toml::to_string(suggestion).context("writing the suggested settings")?;
        files.push((name, format!("# From {origin}.\n{settings}")));
    }
    Ok(files)
}

/// Writes the results, the page and the configuration files into a folder. Existing files are replaced.
/// `names` are those of the number and of the share of correct sentences.
pub fn save(
    out: &Path,
    result: &impl Serialize,
    calibration: &Calibration,
    names: [&str; 2],
    config_files: &[(String, String)],
) -> Result<()> {
    files::create_folder(out)?;
    let results = (CALIBRATION.to_owned(), serde_json::to_string_pretty(result)? + "\n");
    for (name, text) in std::iter::once(&results).chain(config_files) {
        files::write(&out.join(name), text)?;
    }
    Ok(page::save(&out.join(PAGE), &corver_report::calibration::calibration(calibration, names))?)
}

/// Prints the configuration files, and the folder that has them.
pub fn show_files(files: &[(String, String)], out: Option<&Path>) {
    if !files.is_empty() && files.iter().all(|(name, _)| name != "first.toml") {
        output::line("the shares do not rise significantly: no tiers for `first` are suggested");
    }
    for (name, text) in files {
        output::line(format_args!("# {name}, for --config"));
        output::lines(text);
    }
    if let Some(out) = out {
        output::line(format_args!("everything is in {}", out.display()));
    }
}

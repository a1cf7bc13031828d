//! `corver-host calibrate read`: computes P(correct) by count from labelled sheets, and suggests
//! settings.

use std::path::Path;

use anyhow::{Context, Result};
use corver_analysis::calibrate::{
    Calibration, CorrectShare, Suggestion, calibrate, read_sheets, suggest,
};
use corver_report::page;
use serde::Serialize;

use super::cells;
use crate::args::ReadArgs;
use crate::output;

/// File with the results.
const CALIBRATION: &str = "calibration.json";
/// Page with the plots.
const PAGE: &str = "calibration.html";

/// A calibration, and the settings that it suggests.
#[derive(Serialize)]
struct CalibrationResult {
    #[serde(flatten)]
    calibration: Calibration,
    suggestions: Vec<Suggestion>,
}

pub fn run(args: &ReadArgs, json: bool) -> Result<()> {
    let calibration = calibrate(&read_sheets(&args.sheets)?)?;
    let suggestions = suggest(&calibration.buckets);
    let files = suggestions
        .iter()
        .map(|suggestion| Ok((file_name(suggestion), as_toml(suggestion, &calibration)?)));
    let files: Vec<(String, String)> = files.collect::<Result<_>>()?;
    let read = CalibrationResult { calibration, suggestions };
    if let Some(out) = &args.out {
        write(out, &read, &files)?;
    }
    if json {
        return output::json(&read);
    }
    show(&read.calibration);
    if read.suggestions.iter().all(|suggestion| suggestion.rule.plugin != "first.wasm") {
        output::line("the shares do not rise significantly: no tiers for `first` are suggested");
    }
    for (name, text) in &files {
        output::line(format_args!("# {name}, for --config"));
        output::lines(text);
    }
    if let Some(out) = &args.out {
        output::line(format_args!("everything is in {}", out.display()));
    }
    Ok(())
}

fn file_name(suggestion: &Suggestion) -> String {
    Path::new(&suggestion.rule.plugin).with_extension("toml").display().to_string()
}

fn as_toml(suggestion: &Suggestion, calibration: &Calibration) -> Result<String> {
    let labelled: u64 = calibration.buckets.iter().map(|bucket| bucket.share.n).sum();
    let by_model = match calibration.by_model {
        0 => String::new(),
        by_model => format!("; a model labelled {by_model}"),
    };
    let settings = toml::to_string(suggestion).context("writing the suggested settings")?;
    Ok(format!("# From {labelled} labelled sentences{by_model}.\n{settings}"))
}

fn write(out: &Path, read: &CalibrationResult, files: &[(String, String)]) -> Result<()> {
    std::fs::create_dir_all(out)
        .with_context(|| format!("cannot create the folder {}", out.display()))?;
    let calibration = (CALIBRATION.to_owned(), serde_json::to_string_pretty(read)? + "\n");
    for (name, text) in std::iter::once(&calibration).chain(files) {
        let path = out.join(name);
        corver_files::replace(&path, text.as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(page::save(&out.join(PAGE), &corver_report::calibration::calibration(&read.calibration))?)
}

fn show(calibration: &Calibration) {
    let Calibration { buckets, unclear, unlabelled, by_model, agreement, .. } = calibration;
    output::table(
        ["count", "correct", "of", "P(correct)", "95 %"],
        buckets.iter().map(|bucket| {
            let CorrectShare { correct, .. } = bucket.share;
            let [n, share, interval] = cells(&bucket.share);
            [bucket.bucket.to_string(), correct.to_string(), n, share, interval]
        }),
    );
    output::line(calibration.summary());
    if unclear + unlabelled > 0 {
        output::line(format_args!(
            "not counted: {unclear} sentences labelled unclear, {unlabelled} without a label"
        ));
    }
    if *by_model > 0 {
        output::line(format_args!(
            "a model labelled {by_model} of the sentences; check its labels by hand"
        ));
    }
    if let Some(agreement) = agreement {
        let kappa =
            agreement.kappa.map_or(String::new(), |kappa| format!(", Fleiss' κ {kappa:.2}"));
        output::line(format_args!(
            "{} sentences have several labels: {} of the pairs agree{kappa}",
            agreement.sentences,
            output::percent(agreement.share)
        ));
    }
}

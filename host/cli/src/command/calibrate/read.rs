//! `corver-host calibrate read`: computes P(correct) by count from labelled sheets, and suggests
//! settings.

use anyhow::Result;
use corver_analysis::calibrate::{
    Calibration, CorrectShare, Suggestion, calibrate, read_sheets, suggest,
};
use serde::Serialize;

use super::saved::{self, cells};
use crate::args::ReadArgs;
use crate::output;

/// Names of the number and of the share of correct sentences.
const NAMES: [&str; 2] = ["correct", "P(correct)"];

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
    let files = saved::config_files(&suggestions, &origin(&calibration))?;
    let read = CalibrationResult { calibration, suggestions };
    if let Some(out) = &args.out {
        saved::save(out, &read, &read.calibration, NAMES, &files)?;
    }
    if json {
        return output::json(&read);
    }
    show(&read.calibration);
    saved::show_files(&files, args.out.as_deref());
    Ok(())
}

/// Describes the labels, for the configuration files.
fn origin(calibration: &Calibration) -> String {
    let labelled: u64 = calibration.buckets.iter().map(|bucket| bucket.share.n).sum();
    let by_model = match calibration.by_model {
        0 => String::new(),
        by_model => format!("; a model labelled {by_model}"),
    };
    format!("{labelled} labelled sentences{by_model}")
}

fn show(calibration: &Calibration) {
    let Calibration { buckets, unclear, unlabelled, by_model, agreement, .. } = calibration;
    output::table(
        ["count", NAMES[0], "of", NAMES[1], "95 %"],
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

//! Judging sentences of calibration sheets, and comparing the judge with people's labels.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use corver_analysis::calibrate::{
    Calibration, CorrectShare, CountBucket, SheetRow, TruthLabel, read_sheets_of_people, sheet,
};
use corver_analysis::judge::{JudgeSubject, JudgedSubject, SentenceFindings, by_count};
use serde::Serialize;

use super::{Bill, request_labels, show_agreement};
use crate::args::JudgeArgs;
use crate::command::calibrate::saved::cells;
use crate::output;

const BUILT_IN: &str = include_str!("../../../../../configs/judge/sentence.toml");
/// The sheet with the model's labels.
const SHEET: &str = "sheet.csv";
/// Number of disputed sentences that are printed.
const SHOWN: usize = 10;

/// Results of judging sentences.
#[derive(Debug, Serialize)]
struct SentenceSummary<'a> {
    sentences: usize,
    #[serde(flatten)]
    findings: SentenceFindings,
    #[serde(flatten)]
    bill: &'a Bill,
}

pub fn run(args: &JudgeArgs, json: bool) -> Result<()> {
    ensure!(
        args.questions.is_empty(),
        "sentences are judged without their questions; omit --questions"
    );
    let mut rows = read_sheets_of_people(&args.files)?.rows;
    rows.truncate(args.limit.unwrap_or(rows.len()));
    ensure!(!rows.is_empty(), "there is no sentence in the sheet");
    // Overlapping buckets are an error; it must come before requests that cost money.
    by_count(rows.iter().map(|row| (row.clone(), row.label)))?;

    let judge_run = request_labels(args, BUILT_IN, &rows)?;
    let judged = judge_run.judged(&rows)?;
    let model = &judge_run.bill.model;
    let by_model: Vec<SheetRow> =
        judged.iter().map(|item| item.subject.labelled_by(model, item.model)).collect();
    judge_run.run.write(SHEET, sheet::to_csv(&by_model).as_bytes())?;
    let summary = SentenceSummary {
        sentences: rows.len(),
        findings: SentenceFindings::new(&judged)?,
        bill: &judge_run.bill,
    };
    judge_run.run.finish(&summary)?;
    if json {
        return output::json(&summary);
    }
    show(&summary, &rows);
    let disputed = show_disputed(&judged);
    judge_run.show(disputed);
    let path = judge_run.run.path().join(SHEET);
    output::line(format_args!(
        "the model's labels, to be checked and given to `calibrate read`, are in {}",
        path.display()
    ));
    Ok(())
}

fn show(summary: &SentenceSummary<'_>, rows: &[SheetRow]) {
    let SentenceFindings { affirmed, rejected, missed, agreement, unclear, .. } = &summary.findings;
    show_by_count(&summary.findings, rows);
    output::line(format_args!(
        "the model affirms {affirmed} and rejects {rejected} of {} sentences",
        summary.sentences
    ));
    if let Some(calibration) = &summary.findings.affirmed_by_count {
        output::line(format_args!("what it affirms: {}", calibration.summary()));
    }
    if let Some(agreement) = agreement {
        show_agreement("people", SheetRow::NEEDED, agreement);
    }
    if let Some(missed) = missed {
        let [of, share, interval] = cells(missed);
        output::line(format_args!(
            "of {of} sentences that people found wrong, it affirms {}: {share} (95 %: {interval})",
            missed.correct
        ));
    }
    if *unclear > 0 {
        output::line(format_args!(
            "people labelled {unclear} sentences unclear; the table and κ exclude them"
        ));
    }
}

/// Prints the table by count; the columns of people's labels only if there are any.
fn show_by_count(findings: &SentenceFindings, rows: &[SheetRow]) {
    let SentenceFindings { affirmed_by_count, correct_by_count, missed_by_count, .. } = findings;
    let share = |calibration: &Option<Calibration>, bucket: CountBucket| {
        let buckets = calibration.iter().flat_map(|calibration| &calibration.buckets);
        buckets.into_iter().find(|own| own.bucket == bucket).map(|own| own.share)
    };
    let share_cells = |shown: Option<CorrectShare>| match shown.as_ref().map(cells) {
        Some([n, part, interval]) => [format!("{part} of {n}"), interval],
        None => ["–".to_owned(), String::new()],
    };
    let buckets: BTreeSet<CountBucket> = rows.iter().map(|row| row.bucket).collect();
    let header = ["count", "P(affirmed)", "95 %", "P(correct)", "95 %", "wrong, affirmed"];
    let columns = if correct_by_count.is_some() { header.len() } else { 3 };
    let row = |bucket: CountBucket| {
        let missed = share(missed_by_count, bucket);
        let missed = missed.map_or("–".to_owned(), |own| format!("{} of {}", own.correct, own.n));
        let affirmed = share_cells(share(affirmed_by_count, bucket));
        let correct = share_cells(share(correct_by_count, bucket));
        let mut cells = [&[bucket.to_string()][..], &affirmed, &correct, &[missed]].concat();
        cells.truncate(columns);
        cells
    };
    output::table(&header[..columns], buckets.into_iter().map(row));
}

/// Prints disputed sentences, those that people found wrong first, by count. Returns the number of
/// all disputed ones.
fn show_disputed(judged: &[JudgedSubject<'_, SheetRow>]) -> usize {
    let mut disputed: Vec<&JudgedSubject<'_, SheetRow>> =
        judged.iter().filter(|item| item.is_disputed()).collect();
    disputed.sort_by_key(|item| {
        (item.subject.label != Some(TruthLabel::Incorrect), item.subject.count)
    });
    for JudgedSubject { subject: SheetRow { count, sentence, label, .. }, model, .. } in
        disputed.iter().take(SHOWN)
    {
        let [people, model] = [label, model].map(|label| label.map_or("", TruthLabel::word));
        output::line(format_args!("count {count}, people: {people}, model: {model}: {sentence}"));
    }
    disputed.len()
}

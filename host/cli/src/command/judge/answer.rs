//! Judging graded answers, and comparing the judge with string match.

use anyhow::{Result, ensure};
use corver_analysis::judge::answer::LABELS;
use corver_analysis::judge::{JudgeAgreement, read_items};
use serde::Serialize;

use super::{Bill, request_labels, show_agreement};
use crate::args::JudgeArgs;
use crate::output;
use crate::questions::named_questions;

const BUILT_IN: &str = include_str!("../../../../../configs/judge/answer.toml");

/// Results of judging answers.
#[derive(Debug, Serialize)]
struct AnswerSummary<'a> {
    answers: usize,
    #[serde(flatten)]
    agreement: JudgeAgreement<3>,
    #[serde(flatten)]
    bill: &'a Bill,
}

pub fn run(args: &JudgeArgs, json: bool) -> Result<()> {
    ensure!(
        !args.questions.is_empty(),
        "answers have no golds; name the question file with --questions"
    );
    let mut questions = Vec::new();
    for path in &args.questions {
        questions.extend(named_questions(path)?);
    }
    let mut items = Vec::new();
    for path in &args.files {
        items.extend(read_items(path, &questions)?);
    }
    items.truncate(args.limit.unwrap_or(items.len()));

    let judge_run = request_labels(args, BUILT_IN, &items)?;
    let judged = judge_run.judged(&items)?;
    let summary = AnswerSummary {
        answers: items.len(),
        agreement: JudgeAgreement::count(LABELS, &judged),
        bill: &judge_run.bill,
    };
    judge_run.run.finish(&summary)?;
    if json {
        return output::json(&summary);
    }
    show_agreement("string match", LABELS, &summary.agreement);
    judge_run.show(judged.iter().filter(|item| item.is_disputed()).count());
    Ok(())
}

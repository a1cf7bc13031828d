//! Graded answers, beside the string match.

use anyhow::{Result, ensure};
use corver_analysis::judge::answer::LABELS;
use corver_analysis::judge::{JudgeAgreement, read_items};
use serde::Serialize;

use super::{Bill, ask, show_agreement};
use crate::args::JudgeArgs;
use crate::output;
use crate::questions::named_questions;

const BUILT_IN: &str = include_str!("../../../../../configs/judge/answer.toml");

/// What came of it.
#[derive(Debug, Serialize)]
struct Summary<'a> {
    answers: usize,
    #[serde(flatten)]
    agreement: JudgeAgreement<3>,
    #[serde(flatten)]
    bill: &'a Bill,
}

pub fn run(args: &JudgeArgs, json: bool) -> Result<()> {
    ensure!(
        !args.questions.is_empty(),
        "answers hold no golds; --questions names the file with the questions"
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

    let asked = ask(args, BUILT_IN, &items)?;
    let judged = asked.judged(&items)?;
    let summary = Summary {
        answers: items.len(),
        agreement: JudgeAgreement::count(LABELS, &judged),
        bill: &asked.bill,
    };
    asked.run.finish(&summary)?;
    if json {
        return output::json(&summary);
    }
    show_agreement("string match", LABELS, &summary.agreement);
    asked.show(judged.iter().filter(|one| one.is_disputed()).count());
    Ok(())
}

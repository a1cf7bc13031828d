//! Graded answers as items of a judge, compared with the string match.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

use corver_core::response::AnswerRule;
use corver_core::{Label, Question};
use serde::Serialize;

use super::JudgeSubject;
use corver_eval::{GradedAnswer, LinesError, read_graded};

/// Order of rows and columns in a table of both judges' labels.
pub const LABELS: [Label; 3] = [Label::Good, Label::Bad, Label::NotAttempted];

/// Error of reading answers to judge.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// The file cannot be read.
    #[error(transparent)]
    Graded(#[from] LinesError),
    /// The file has no answers, or one to a question without a known gold.
    #[error("{0}")]
    InvalidAnswers(String),
}

/// Graded answer as an item to judge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Item {
    /// Question that was answered.
    pub question: String,
    /// Accepted answers to the question.
    pub golds: Vec<String>,
    /// Text of the answer block; empty if there is none.
    pub answer: String,
    /// Completion that contains the answer.
    #[serde(skip)]
    pub completion: String,
    /// Label of the string match.
    pub string_match: Label,
}

impl JudgeSubject for Item {
    type Label = Label;
    const FIELDS: &'static [&'static str] = &["question", "golds", "answer", "completion"];
    const SHOWN: &'static [&'static str] = &["answer", "completion"];
    const NEEDED: [Label; 2] = [Label::Good, Label::Bad];

    fn field(&self, name: &str) -> Cow<'_, str> {
        match name {
            "question" => self.question.as_str().into(),
            "golds" => self.golds.join("; ").into(),
            "answer" => self.answer.as_str().into(),
            _ => self.completion.as_str().into(),
        }
    }

    fn label(&self) -> Option<Label> {
        Some(self.string_match)
    }

    fn is_decided(_: Label) -> bool {
        true
    }
}

/// Reads graded answers, with the golds of their questions. If several questions have the same text
/// (in PopQA, about people of the same name), their answers are assigned in order.
///
/// # Errors
/// If the file cannot be read, has no answers, or has one whose question is not among `questions` or
/// has no gold.
pub fn read_items(path: &Path, questions: &[Question]) -> Result<Vec<Item>, AnswerError> {
    let mut golds: HashMap<&str, Vec<&[String]>> = HashMap::new();
    for question in questions.iter().filter(|question| !question.golds.is_empty()) {
        golds.entry(&question.question).or_default().push(&question.golds);
    }
    // Of each text, the number of its questions whose answers have begun.
    let mut num_answered: HashMap<String, usize> = HashMap::new();
    let mut items = Vec::new();
    for (index, answer) in read_graded::<GradedAnswer>(path)?.into_iter().enumerate() {
        let Some(candidates) = golds.get(answer.question.as_str()) else {
            return Err(AnswerError::InvalidAnswers(format!(
                "{}:{}: no gold is known for {:?}; --questions names the file \
                 with the questions",
                path.display(),
                index + 1,
                answer.question
            )));
        };
        let number = num_answered.entry(answer.question.clone()).or_default();
        // Further samples answer the same question.
        *number += usize::from(answer.sample.is_none_or(|sample| sample == 0));
        let candidate = number.saturating_sub(1).min(candidates.len() - 1);
        items.push(Item {
            golds: candidates[candidate].to_vec(),
            answer: AnswerRule::default().extract(&answer.completion).to_owned(),
            question: answer.question,
            completion: answer.completion,
            string_match: answer.grade,
        });
    }
    if items.is_empty() {
        let problem = format!("{} has no answers", path.display());
        return Err(AnswerError::InvalidAnswers(problem));
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn equally_worded_questions_retain_own_golds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("answers.jsonl");
        let line = |sample: Option<usize>| {
            let sample = sample.map_or(String::new(), |sample| format!(", \"sample\": {sample}"));
            format!(
                r#"{{"grade": "BAD", "length": 3, "question": "Who is he?", "completion": "<answer>x</answer>"{sample}}}"#
            )
        };
        let question = |gold: &str| Question {
            question: "Who is he?".into(),
            golds: vec![gold.into()],
            ..Question::default()
        };
        let questions = [question("a painter"), question("a pilot")];
        for lines in [vec![line(None); 2], [0, 1, 0, 1].map(|sample| line(Some(sample))).to_vec()] {
            fs::write(&path, lines.join("\n")).unwrap();
            let items = read_items(&path, &questions).unwrap();
            let (first, second) = items.split_at(items.len() / 2);
            assert!(first.iter().all(|item| item.golds == ["a painter"]), "{items:?}");
            assert!(second.iter().all(|item| item.golds == ["a pilot"]), "{items:?}");
        }
    }
}

//! Graded answers, beside the string match.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

use corver_core::response::AnswerRule;
use corver_core::{Label, Question};
use serde::Serialize;

use super::Subject;
use corver_eval::{GradedAnswer, GradedError, read_graded};

/// The order of rows and columns where both judges' labels are counted.
pub const LABELS: [Label; 3] = [Label::Good, Label::Bad, Label::NotAttempted];

/// Why answers cannot be judged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// Answers that cannot be read.
    #[error(transparent)]
    Graded(#[from] GradedError),
    /// A file without answers, or with one to a question whose gold is not known.
    #[error("{0}")]
    InvalidAnswers(String),
}

/// An answer to judge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Item {
    /// What was asked.
    pub question: String,
    /// Every spelling that counts as right.
    pub golds: Vec<String>,
    /// What stands in the answer block; empty where there is none.
    pub answer: String,
    /// All that was generated.
    #[serde(skip)]
    pub completion: String,
    /// What the string match made of it.
    pub string_match: Label,
}

impl Subject for Item {
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

/// Reads graded answers, with the golds of their questions. Where several questions have the same
/// words (in PopQA, about people of the same name), the first answer is to the first of them, and
/// so on.
///
/// # Errors
/// A file that cannot be read, a line that is no answer, or one whose question is not among
/// `questions` or has no gold.
pub fn read_items(path: &Path, questions: &[Question]) -> Result<Vec<Item>, AnswerError> {
    let mut golds: HashMap<&str, Vec<&[String]>> = HashMap::new();
    for question in questions.iter().filter(|question| !question.golds.is_empty()) {
        golds.entry(&question.question).or_default().push(&question.golds);
    }
    let mut asked: HashMap<String, usize> = HashMap::new();
    let mut items = Vec::new();
    for (index, answer) in read_graded::<GradedAnswer>(path)?.into_iter().enumerate() {
        let Some(alike) = golds.get(answer.question.as_str()) else {
            return Err(AnswerError::InvalidAnswers(format!(
                "{}:{}: no gold is known for {:?}; --questions names the file that was asked",
                path.display(),
                index + 1,
                answer.question
            )));
        };
        let times = asked.entry(answer.question.clone()).or_default();
        *times += usize::from(answer.sample.is_none_or(|sample| sample == 0));
        let own_golds = alike[times.saturating_sub(1).min(alike.len() - 1)];
        items.push(Item {
            golds: own_golds.to_vec(),
            answer: AnswerRule::Paper.extract(&answer.completion).to_owned(),
            question: answer.question,
            completion: answer.completion,
            string_match: answer.grade,
        });
    }
    if items.is_empty() {
        let problem = format!("{} holds no answer", path.display());
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

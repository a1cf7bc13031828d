//! Arguments of `Scorer.score` → rollouts and questions.

use std::sync::Arc;

use anyhow::{Context, Result};
use corver_core::{Compatibility, Question, Rollout};
use corver_data::GoldsField;
use corver_pretrained::{Decoded, TextTokenizer};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rayon::prelude::*;
use serde_json::Value;

/// Completions to score, as texts or as token ids.
pub enum CompletionsArg {
    /// Texts, with a token for each character.
    Texts(Vec<String>),
    /// Token ids `[B][T]`, with their tokenizer.
    Tokens(Vec<Vec<u32>>, Arc<TextTokenizer>),
}

impl CompletionsArg {
    pub fn len(&self) -> usize {
        match self {
            Self::Texts(texts) => texts.len(),
            Self::Tokens(rows, _) => rows.len(),
        }
    }

    /// Returns one rollout for each completion, of the question with the same index.
    pub fn rollouts(self, compatibility: Compatibility) -> Result<Vec<Rollout>> {
        match self {
            Self::Texts(texts) => Ok(texts
                .into_iter()
                .enumerate()
                .map(|(question, text)| Rollout::of_text(question, text))
                .collect()),
            Self::Tokens(rows, tokenizer) => rows
                .into_par_iter()
                .enumerate()
                .map(|(question, tokens)| {
                    let Decoded { text, token_spans } = tokenizer
                        .decode_as(&tokens, compatibility)
                        .with_context(|| format!("decoding completion {question}"))?;
                    Ok(Rollout {
                        question,
                        tokens,
                        log_probs: Vec::new(),
                        text,
                        token_spans,
                        finished: true,
                    })
                })
                .collect(),
        }
    }
}

/// Golds in a column of a dataset: a list, or one text that `;` separates.
#[derive(FromPyObject)]
pub enum GoldsArg {
    Separated(String),
    Listed(Vec<String>),
}

impl GoldsArg {
    fn golds(self) -> Result<Vec<String>, String> {
        match self {
            Self::Listed(golds) => read_golds(golds.into()),
            Self::Separated(golds) => read_golds(golds.into()),
        }
    }
}

fn read_golds(value: Value) -> Result<Vec<String>, String> {
    GoldsField::try_from(value).map(|GoldsField(golds)| golds)
}

/// Texts that contain the answer, in a column of a dataset: one, or a list.
#[derive(FromPyObject)]
pub enum EvidenceArg {
    One(String),
    Listed(Vec<String>),
}

impl EvidenceArg {
    fn texts(self) -> Vec<String> {
        match self {
            Self::One(text) => vec![text],
            Self::Listed(texts) => texts,
        }
    }
}

/// Columns of a dataset, each with one entry for each completion, or `None`.
pub struct Columns {
    pub questions: Option<Vec<String>>,
    pub golds: Option<Vec<Option<GoldsArg>>>,
    pub titles: Option<Vec<Option<String>>>,
    pub evidence: Option<Vec<Option<EvidenceArg>>>,
}

impl Columns {
    /// Returns one question for each of `count` completions.
    pub fn questions(self, count: usize) -> PyResult<Vec<Question>> {
        let texts = column("questions", self.questions, count)?;
        let mut golds = Vec::with_capacity(count);
        for row in column("answers", self.golds, count)? {
            golds.push(row.flatten());
        }
        let titles = column("titles", self.titles, count)?;
        let evidence = column("lists of evidence", self.evidence, count)?;
        let mut questions = Vec::with_capacity(count);
        let rows = texts.into_iter().zip(golds).zip(titles).zip(evidence);
        for (row, (((text, golds_of_row), title), evidence_of_row)) in rows.enumerate() {
            let listed = golds_of_row
                .map_or_else(|| Ok(Vec::new()), GoldsArg::golds)
                .map_err(|problem| PyValueError::new_err(format!("answers[{row}]: {problem}")))?;
            questions.push(Question {
                question: text.unwrap_or_default(),
                golds: listed,
                title: title.flatten(),
                evidence: evidence_of_row.flatten().map_or_else(Vec::new, EvidenceArg::texts),
                ..Question::default()
            });
        }
        Ok(questions)
    }
}

/// Returns a list with one entry for each completion; all `None` if the column is not given.
fn column<T>(name: &str, values: Option<Vec<T>>, count: usize) -> PyResult<Vec<Option<T>>> {
    match values {
        None => Ok((0..count).map(|_| None).collect()),
        Some(values) if values.len() == count => Ok(values.into_iter().map(Some).collect()),
        Some(values) => Err(PyValueError::new_err(format!(
            "there are {} {name} for {count} completions; give one for each",
            values.len()
        ))),
    }
}

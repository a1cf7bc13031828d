//! What `Scorer.score` is given → rollouts and questions.

use std::sync::Arc;

use anyhow::{Context, Result};
use corver_core::{Compatibility, Question, Rollout};
use corver_data::GoldsField;
use corver_pretrained::{Decoded, TextTokenizer};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rayon::prelude::*;

/// What was generated.
pub enum Completions {
    Texts(Vec<String>),
    Tokens(Vec<Vec<u32>>, Arc<TextTokenizer>),
}

impl Completions {
    pub fn len(&self) -> usize {
        match self {
            Self::Texts(texts) => texts.len(),
            Self::Tokens(rows, _) => rows.len(),
        }
    }

    /// One rollout for each completion, of the question in the same place. Texts have a token for
    /// each character.
    pub fn rollouts(self, compatibility: Compatibility) -> Result<Vec<Rollout>> {
        match self {
            Self::Texts(texts) => Ok(texts
                .into_iter()
                .enumerate()
                .map(|(at, text)| Rollout::of_text(at, text))
                .collect()),
            Self::Tokens(rows, tokenizer) => rows
                .into_par_iter()
                .enumerate()
                .map(|(question, tokens)| {
                    let decoded = tokenizer.decode_as(&tokens, compatibility);
                    let Decoded { text, token_spans } =
                        decoded.with_context(|| format!("decoding completion {question}"))?;
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

/// Golds, as a column of a dataset has them: a list, or one text that `;` separates.
#[derive(FromPyObject)]
pub enum Golds {
    Separated(String),
    Listed(Vec<String>),
}

/// Texts that hold the answer, as a column of a dataset has them: one, or a list.
#[derive(FromPyObject)]
pub enum Evidence {
    One(String),
    Listed(Vec<String>),
}

impl Evidence {
    fn texts(self) -> Vec<String> {
        match self {
            Self::One(text) => vec![text],
            Self::Listed(texts) => texts,
        }
    }
}

/// One question for each of `count` completions.
pub fn questions(
    count: usize,
    texts: Option<Vec<String>>,
    golds: Option<Vec<Option<Golds>>>,
    titles: Option<Vec<Option<String>>>,
    evidence: Option<Vec<Option<Evidence>>>,
) -> PyResult<Vec<Question>> {
    let texts = column("questions", texts, count)?;
    let golds = column("answers", golds, count)?;
    let golds = golds.into_iter().enumerate().map(|(row, golds)| {
        let golds = match golds.flatten() {
            None => Ok(Vec::new()),
            Some(Golds::Listed(golds)) => GoldsField::Listed(golds).golds(),
            Some(Golds::Separated(golds)) => GoldsField::Separated(golds).golds(),
        };
        golds.map_err(|problem| PyValueError::new_err(format!("answers[{row}]: {problem}")))
    });
    let titles = column("titles", titles, count)?.into_iter().map(Option::flatten);
    let evidence = column("lists of evidence", evidence, count)?.into_iter().map(Option::flatten);
    let rows = texts.into_iter().zip(golds).zip(titles).zip(evidence);
    rows.map(|(((text, own_golds), title), texts_given)| {
        let passages = texts_given.map_or_else(Vec::new, Evidence::texts);
        Ok(Question {
            question: text.unwrap_or_default(),
            golds: own_golds?,
            title,
            evidence: passages,
            ..Question::default()
        })
    })
    .collect()
}

/// A list with one entry for each completion; nothing in each place where it is not given.
fn column<T>(name: &str, given: Option<Vec<T>>, count: usize) -> PyResult<Vec<Option<T>>> {
    match given {
        None => Ok((0..count).map(|_| None).collect()),
        Some(given) if given.len() == count => Ok(given.into_iter().map(Some).collect()),
        Some(given) => {
            let told = format!(
                "there are {} {name} for {count} completions; give one for each",
                given.len()
            );
            Err(PyValueError::new_err(told))
        }
    }
}

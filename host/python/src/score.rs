//! The Python class `Score`: the reward of a completion, with its reasons.

use corver_core::{
    CountPrecision, Credit, Exchange, Explained, Grade, Lookup, ReturnParts, Section,
    SentenceTrace, TokenReward, Trace, Triplet,
};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};

use crate::error;

/// The reward of a completion, with its reasons. `Scorer.score` returns them.
///
/// `reward` is the mean return over the tokens, `returns` the return of each token, and `sentences`
/// has the verdict on each sentence.
#[pyclass(frozen, module = "corver")]
pub struct Score {
    trace: Trace,
    parts: ReturnParts,
    /// `None` if a text was scored.
    tokens: Option<TokenSeries>,
}

/// Values of each token of a completion.
pub struct TokenSeries {
    /// `[T]` returns of the tokens.
    pub returns: Vec<f64>,
    /// `[T]` of 1, −1 and 0; 0 leaves the sign of the advantage.
    pub advantage_signs: Vec<i8>,
}

impl Score {
    pub fn new(parts: ReturnParts, trace: Trace, tokens: TokenSeries) -> Self {
        Self { trace, parts, tokens: Some(tokens) }
    }

    /// Drops the values of tokens, for a text that was scored with a token for each character.
    pub fn without_tokens(self) -> Self {
        Self { tokens: None, ..self }
    }
}

#[pymethods]
impl Score {
    /// Mean return over the tokens; over the characters if a text was scored.
    #[getter]
    fn reward(&self) -> f64 {
        self.trace.mean_return
    }

    /// Return of each token, `[T]` floats in the order of the ids; None if a text was scored. A new
    /// list every time.
    #[getter]
    fn returns(&self) -> Option<Vec<f64>> {
        self.tokens.as_ref().map(|tokens| tokens.returns.clone())
    }

    /// Sign that the rule sets for the advantage of each token, `[T]` of 1, -1 and 0 (not set); None
    /// if a text was scored. `corver.advantages` applies them. A new list every time.
    #[getter]
    fn advantage_signs(&self) -> Option<Vec<i8>> {
        self.tokens.as_ref().map(|tokens| tokens.advantage_signs.clone())
    }

    /// Question of the completion; empty if none was given.
    #[getter]
    fn question(&self) -> &str {
        &self.trace.question
    }

    /// Completion that was scored; token ids are decoded without special tokens.
    #[getter]
    fn text(&self) -> &str {
        &self.trace.completion
    }

    /// Grade of the answer judge, before its weight: `Grade(reward, label, note)`.
    #[getter]
    fn judge<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        grade(py, &self.trace.response.judge)
    }

    /// Grade of the format check, before its weight: `Grade(reward, label, note)`.
    #[getter]
    fn format<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        grade(py, &self.trace.response.format)
    }

    /// Share of the tokens in scored sections that belong to a sentence, 0 to 1.
    #[getter]
    fn alignment_rate(&self) -> f64 {
        self.trace.alignment_rate
    }

    /// True if no sentence was scored: there is none, or too few tokens are aligned to sentences.
    #[getter]
    fn fallback(&self) -> bool {
        self.trace.fallback
    }

    /// Parts of the reward, which add up to it: `{"judge": …, "format": …, "sentences": …}`.
    #[getter]
    fn return_parts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let parts = PyDict::new(py);
        parts.set_item("judge", self.parts.judge)?;
        parts.set_item("format", self.parts.format)?;
        parts.set_item("sentences", self.parts.sentences)?;
        Ok(parts)
    }

    /// Sentences of the completion, those of the think block first: `[Sentence(text, section,
    /// triplets, reward, credit, count, note, lookups, exchanges, tokens)]`.
    #[getter]
    fn sentences<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.trace.sentences.iter().map(|trace| sentence(py, trace)).collect()
    }

    /// The score as a dict, equal to a line of `corver-host score --json`.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let explained = Explained { trace: &self.trace, return_parts: self.parts };
        let json =
            serde_json::to_string(&explained).map_err(|error| error::corver(error.into()))?;
        py.import("json")?.call_method1("loads", (json,))
    }

    fn __repr__(&self) -> String {
        let Self { trace, tokens, .. } = self;
        let length = match tokens {
            None => "a text".to_owned(),
            Some(tokens) => format!("{} tokens", tokens.returns.len()),
        };
        format!(
            "<corver.Score {:+.3}: judge {}, format {}, {} sentences, {length}>",
            trace.mean_return,
            trace.response.judge.label,
            trace.response.format.label,
            trace.sentences.len()
        )
    }
}

fn sentence<'py>(py: Python<'py>, sentence: &SentenceTrace) -> PyResult<Bound<'py, PyAny>> {
    static SENTENCE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let SentenceTrace { text, section, triplets, verdict, tokens } = sentence;
    let mut triplet_tuples = Vec::with_capacity(triplets.len());
    for Triplet { head, relation, tail } in triplets {
        triplet_tuples.push((head, relation, tail));
    }
    let mut reward = None;
    let mut count = None;
    let mut note = None;
    let mut credited = None;
    let mut lookups = Vec::new();
    let mut exchanges = Vec::new();
    if let Some(verdict) = verdict {
        reward = verdict.reward.map(f64::from);
        count = verdict.count;
        note = verdict.note.as_deref();
        credited = credit(py, &verdict.credit)?;
        for record in &verdict.lookups {
            lookups.push(lookup(py, record)?);
        }
        for record in &verdict.exchanges {
            exchanges.push(exchange(py, record)?);
        }
    }
    SENTENCE.import(py, "corver._types", "Sentence")?.call1((
        text,
        section_name(*section),
        triplet_tuples,
        reward,
        credited,
        count,
        note,
        lookups,
        exchanges,
        tokens.as_ref().map(|span| (span.start, span.end)),
    ))
}

fn section_name(section: Section) -> &'static str {
    match section {
        Section::Think => "think",
        Section::Answer => "answer",
        Section::Body => "body",
    }
}

fn precision_name(precision: CountPrecision) -> &'static str {
    match precision {
        CountPrecision::Exact => "exact",
        CountPrecision::AtLeast => "at_least",
        CountPrecision::Estimate => "estimate",
    }
}

fn lookup<'py>(py: Python<'py>, lookup: &Lookup) -> PyResult<Bound<'py, PyAny>> {
    static LOOKUP: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let Lookup { query, count } = lookup;
    LOOKUP.import(py, "corver._types", "Lookup")?.call1((
        query.to_string(),
        count.occurrences,
        precision_name(count.precision),
    ))
}

/// Converts an exchange to a dict, equal to that in `Score.to_dict`.
fn exchange<'py>(py: Python<'py>, exchange: &Exchange) -> PyResult<Bound<'py, PyAny>> {
    let json = serde_json::to_string(exchange).map_err(|error| error::corver(error.into()))?;
    py.import("json")?.call_method1("loads", (json,))
}

/// Returns `None` if every token of the sentence receives its reward.
fn credit<'py>(py: Python<'py>, credit: &Credit) -> PyResult<Option<Bound<'py, PyAny>>> {
    match credit {
        Credit::Sentence => Ok(None),
        Credit::AdvantageSign => Ok(Some("advantage_sign".into_pyobject(py)?.into_any())),
        Credit::TokenRewards(rewards) => {
            let mut token_rewards = Vec::with_capacity(rewards.len());
            for TokenReward { character, reward } in rewards {
                token_rewards.push((*character, f64::from(*reward)));
            }
            Ok(Some(token_rewards.into_pyobject(py)?.into_any()))
        }
    }
}

fn grade<'py>(py: Python<'py>, grade: &Grade) -> PyResult<Bound<'py, PyAny>> {
    static GRADE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    GRADE.import(py, "corver._types", "Grade")?.call1((
        grade.reward,
        &grade.label,
        grade.note.as_deref(),
    ))
}

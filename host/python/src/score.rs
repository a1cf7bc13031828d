//! A score, as Python sees it.

use corver_core::{
    Credit, Exchange, Explained, Grade, Lookup, ReturnParts, Section, SentenceTrace, TokenReward,
    Trace, Triplet,
};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};

use crate::error;

/// What a completion earned, and why. `Scorer.score` makes them.
///
/// score.reward is what it earned on average over its tokens; score.returns what each token earned;
/// score.sentences says why.
#[pyclass(frozen, module = "corver")]
pub struct Score {
    trace: Trace,
    parts: ReturnParts,
    /// `None` where a text was scored.
    tokens: Option<Tokens>,
}

/// What a completion's tokens get.
pub struct Tokens {
    /// `[T]`.
    pub returns: Vec<f64>,
    /// `[T]`.
    pub labels: Vec<i8>,
}

impl Score {
    pub fn new(parts: ReturnParts, trace: Trace, tokens: Tokens) -> Self {
        Self { trace, parts, tokens: Some(tokens) }
    }

    /// Of a text, each character of which stood for a token.
    pub fn without_tokens(self) -> Self {
        Self { tokens: None, ..self }
    }
}

#[pymethods]
impl Score {
    /// Mean return over the tokens; over the characters where a text was scored.
    #[getter]
    fn reward(&self) -> f64 {
        self.trace.mean_return
    }

    /// What each token earned, `[T]` floats in the order of its ids; None where a text was scored.
    /// A new list every time.
    #[getter]
    fn returns(&self) -> Option<Vec<f64>> {
        self.tokens.as_ref().map(|tokens| tokens.returns.clone())
    }

    /// The sign that each token's advantage is to take once it was normalised, `[T]` of 1, -1 and 0
    /// (as it is), where the rule labels sentences; None where a text was scored.
    /// `Baseline.advantage` takes one. A new list every time.
    #[getter]
    fn labels(&self) -> Option<Vec<i8>> {
        self.tokens.as_ref().map(|tokens| tokens.labels.clone())
    }

    /// The question, as it was given.
    #[getter]
    fn question(&self) -> &str {
        &self.trace.question
    }

    /// The completion that was scored; of token ids, what they decode to without special tokens.
    #[getter]
    fn text(&self) -> &str {
        &self.trace.completion
    }

    /// Is the answer right? `Grade(reward, label, note)`, before its weight.
    #[getter]
    fn judge<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        grade(py, &self.trace.response.judge)
    }

    /// Is the format kept? `Grade(reward, label, note)`, before its weight.
    #[getter]
    fn format<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        grade(py, &self.trace.response.format)
    }

    /// Tokens that belong to a sentence, as a share of those in scored sections.
    #[getter]
    fn alignment_rate(&self) -> f64 {
        self.trace.alignment_rate
    }

    /// The sentences were not paid, since too few tokens could be aligned with them.
    #[getter]
    fn fallback(&self) -> bool {
        self.trace.fallback
    }

    /// What adds up to the reward: `{"judge": …, "format": …, "sentences": …}`.
    #[getter]
    fn return_parts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let parts = PyDict::new(py);
        parts.set_item("judge", self.parts.judge)?;
        parts.set_item("format", self.parts.format)?;
        parts.set_item("sentences", self.parts.sentences)?;
        Ok(parts)
    }

    /// Its sentences, think first: `[Sentence(text, section, triplets, reward, credit, count, note,
    /// lookups, exchanges, tokens)]`.
    #[getter]
    fn sentences<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.trace.sentences.iter().map(|one| sentence(py, one)).collect()
    }

    /// All of it, as `corver-host score --json` prints it.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let explained = Explained { trace: &self.trace, return_parts: self.parts };
        let json =
            serde_json::to_string(&explained).map_err(|error| error::corver(error.into()))?;
        py.import("json")?.call_method1("loads", (json,))
    }

    fn __repr__(&self) -> String {
        let Self { trace, tokens, .. } = self;
        let tokens = tokens
            .as_ref()
            .map_or("a text".to_owned(), |tokens| format!("{} tokens", tokens.returns.len()));
        let (judge, format) = (&trace.response.judge.label, &trace.response.format.label);
        let (reward, sentences) = (trace.mean_return, trace.sentences.len());
        format!(
            "<corver.Score {reward:+.3}: judge {judge}, format {format}, {sentences} sentences, {tokens}>"
        )
    }
}

fn sentence<'py>(py: Python<'py>, sentence: &SentenceTrace) -> PyResult<Bound<'py, PyAny>> {
    static SENTENCE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let SentenceTrace { text, section, triplets, verdict, tokens } = sentence;
    let parts =
        |triplet: &Triplet| (triplet.head.clone(), triplet.relation.clone(), triplet.tail.clone());
    let triplets: Vec<_> = triplets.iter().map(parts).collect();
    let verdict = verdict.as_ref();
    let lookups =
        verdict.into_iter().flat_map(|verdict| &verdict.lookups).map(|one| lookup(py, one));
    let lookups: Vec<Bound<'_, PyAny>> = lookups.collect::<PyResult<_>>()?;
    let exchanges =
        verdict.into_iter().flat_map(|verdict| &verdict.exchanges).map(|one| exchange(py, one));
    let exchanges: Vec<Bound<'_, PyAny>> = exchanges.collect::<PyResult<_>>()?;
    SENTENCE.import(py, "corver._types", "Sentence")?.call1((
        text,
        name(*section),
        triplets,
        verdict.and_then(|verdict| verdict.reward).map(f64::from),
        verdict.map_or(Ok(None), |verdict| credit(py, &verdict.credit))?,
        verdict.and_then(|verdict| verdict.count),
        verdict.and_then(|verdict| verdict.note.as_deref()),
        lookups,
        exchanges,
        tokens.as_ref().map(|tokens| (tokens.start, tokens.end)),
    ))
}

fn name(section: Section) -> &'static str {
    match section {
        Section::Think => "think",
        Section::Answer => "answer",
        Section::Body => "body",
    }
}

fn lookup<'py>(py: Python<'py>, lookup: &Lookup) -> PyResult<Bound<'py, PyAny>> {
    static LOOKUP: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let Lookup { query, count } = lookup;
    LOOKUP.import(py, "corver._types", "Lookup")?.call1((
        query.to_string(),
        count.occurrences,
        count.is_exact(),
    ))
}

/// As `Score.to_dict` has it.
fn exchange<'py>(py: Python<'py>, exchange: &Exchange) -> PyResult<Bound<'py, PyAny>> {
    let json = serde_json::to_string(exchange).map_err(|error| error::corver(error.into()))?;
    py.import("json")?.call_method1("loads", (json,))
}

/// `None` where every token of the sentence earns its reward.
fn credit<'py>(py: Python<'py>, credit: &Credit) -> PyResult<Option<Bound<'py, PyAny>>> {
    match credit {
        Credit::Sentence => Ok(None),
        Credit::AdvantageSign => Ok(Some("sign".into_pyobject(py)?.into_any())),
        Credit::TokenRewards(points) => {
            let point = |point: &TokenReward| (point.character, f64::from(point.reward));
            Ok(Some(points.iter().map(point).collect::<Vec<_>>().into_pyobject(py)?.into_any()))
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

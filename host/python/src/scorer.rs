//! The reward, opened once and asked from any thread.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, anyhow};
use corver_core::{Compatibility, Question, ReturnParts, Rollout, ScoredCompletion};
use corver_reward::config::{self, RewardConfig};
use corver_settings::Layers;
use pyo3::exceptions::{PyTypeError, PyUserWarning, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::Value;

use crate::input::{self, Completions, Evidence, Golds};
use crate::score::{Score, Tokens};
use crate::tokens::Tokenizers;
use crate::{error, thread};

/// A name or path, or several.
#[derive(FromPyObject)]
enum OneOrMany {
    One(PathBuf),
    Many(Vec<PathBuf>),
}

impl OneOrMany {
    fn paths(self) -> Vec<PathBuf> {
        match self {
            Self::One(path) => vec![path],
            Self::Many(paths) => paths,
        }
    }

    fn texts(self) -> PyResult<Vec<String>> {
        self.paths().into_iter().map(text).collect()
    }
}

/// The reward: rules, judge, format check, extractor and corpus, opened once.
///
///     scorer = corver.Scorer(plugin="first.wasm", index="my-index", extractor="my-extractor")
///     scores = scorer.score(["<think>…</think><answer>Rome</answer>"], ["What is the capital of Italy?"], [["Rome"]])
///     print(scores[0].reward, scores[0].sentences)
///
/// plugin: the reward rule: a path, or the name of a shipped one. Several add up, with weights:
/// ["first.wasm:0.7", "min.wasm:0.3"]. index: an index folder, a server's `http://HOST:PORT/#NAME`,
/// or "demo". The counts of several are added. extractor: the model that reads triplets: a Hugging
/// Face folder, the name of a model that was downloaded, or "demo". judge, format: response rules
/// in place of the built-in string match and format check. config: settings files (TOML), later
/// ones over earlier ones; "demo" is the built-in one. Default: the demo, if neither an index nor
///     an extractor nor another part of your own is named.
/// set: single settings over the files, such as {"reward.lambda_corver": 0.5}.
/// docs/configuration.md lists all.
///
/// Several threads may use one Scorer; they take turns. A forked process needs one of its own.
///
/// Raises SettingsError where a setting makes no sense, CorverError where something is missing or
/// cannot be opened.
#[pyclass(frozen, module = "corver")]
pub struct Scorer {
    shared: Arc<Mutex<corver_reward::Scorer>>,
    compatibility: Compatibility,
    rule: String,
    /// The process that opened it.
    process: u32,
    tokenizers: Tokenizers,
}

#[pymethods]
impl Scorer {
    #[new]
    #[pyo3(signature = (plugin=None, index=None, extractor=None, *, judge=None, format=None, config=None, set=None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn new(
        py: Python<'_>,
        plugin: Option<OneOrMany>,
        index: Option<OneOrMany>,
        extractor: Option<PathBuf>,
        judge: Option<PathBuf>,
        format: Option<PathBuf>,
        config: Option<OneOrMany>,
        set: Option<Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let files = config.map(OneOrMany::paths).unwrap_or_default();
        let mut layers =
            Layers::new(&files, &assignments(set.as_ref())?).map_err(error::settings)?;
        for (key, given) in [("rule.plugin", plugin), ("corpus.index", index)] {
            if let Some(given) = given {
                layers.set(key, given.texts()?);
            }
        }
        let single =
            [("extract.model", extractor), ("judge.plugin", judge), ("format.plugin", format)];
        for (key, given) in single {
            if let Some(path) = given {
                layers.set(key, text(path)?);
            }
        }
        if layers.is_demo_by_default() {
            let category = py.get_type::<PyUserWarning>();
            PyErr::warn(
                py,
                &category,
                c"nothing of your own is named: this is the built-in demo",
                1,
            )?;
        }
        let merged = layers.settings().map_err(error::settings)?;
        let (settings, reward_config) =
            config::resolve::<RewardConfig>(merged).map_err(error::settings)?;
        let compatibility = settings.reward.compatibility;
        let opened = thread::without_gil(py, move || {
            corver_reward::Scorer::open(&reward_config, &settings)
        })?
        .map_err(error::corver)?;
        Ok(Self {
            compatibility,
            rule: opened.rule().to_owned(),
            shared: Arc::new(Mutex::new(opened)),
            process: std::process::id(),
            tokenizers: Tokenizers::default(),
        })
    }

    /// Scores completions: one Score for each, in order.
    ///
    /// completions: texts. Or, for what each token earns: completion_ids: token ids of each
    /// completion, as a trainer has them, without padding. tokenizer: what made them: a Hugging
    /// Face tokenizer, or the path of a tokenizer.json or of its folder. An object is read once.
    /// questions: what was asked, one for each completion. Rules and judges may look at it; the
    /// built-in ones do not. answers: golds of each question, as a list or as one text that `;`
    /// separates. Where there are none ([] or None), the judge
    ///     pays nothing.
    /// titles, evidence: where the answer of each question was found, and texts that hold it (one,
    /// or a list), for rules that verify
    ///     against them; None where there are none.
    ///
    /// Other Python threads go on meanwhile. Ctrl-C raises KeyboardInterrupt at once; what was
    /// being scored ends in the background.
    ///
    /// Raises ValueError where the lists differ in length, CorverError where a part fails. There is
    /// no partial answer.
    #[pyo3(signature = (completions=None, questions=None, answers=None, *, titles=None, evidence=None, completion_ids=None, tokenizer=None))]
    #[expect(clippy::too_many_arguments, reason = "one for each column of a dataset")]
    fn score(
        &self,
        py: Python<'_>,
        completions: Option<Vec<String>>,
        questions: Option<Vec<String>>,
        answers: Option<Vec<Option<Golds>>>,
        titles: Option<Vec<Option<String>>>,
        evidence: Option<Vec<Option<Evidence>>>,
        completion_ids: Option<Vec<Vec<u32>>>,
        tokenizer: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Vec<Score>> {
        self.check_process()?;
        let completions = match (completions, completion_ids, tokenizer) {
            (Some(texts), None, None) => Completions::Texts(texts),
            (None, Some(rows), Some(tokenizer)) => {
                Completions::Tokens(rows, self.tokenizers.of(&tokenizer)?)
            }
            _ => {
                return Err(PyValueError::new_err(
                    "give either completions, or completion_ids and their tokenizer",
                ));
            }
        };
        let are_texts = matches!(completions, Completions::Texts(_));
        let questions = input::questions(completions.len(), questions, answers, titles, evidence)?;
        let (shared, compatibility) = (Arc::clone(&self.shared), self.compatibility);
        let work = move || scored(&shared, completions.rollouts(compatibility)?, &questions);
        let scored = thread::without_gil(py, work)?.map_err(error::corver)?;
        Ok(if are_texts { scored.into_iter().map(Score::without_tokens).collect() } else { scored })
    }

    /// The rule's name; of several, joined with "+".
    #[getter]
    fn rule(&self) -> &str {
        &self.rule
    }

    fn __repr__(&self) -> String {
        format!("<corver.Scorer {}>", self.rule)
    }
}

impl Scorer {
    fn check_process(&self) -> PyResult<()> {
        let here = std::process::id();
        if here == self.process {
            return Ok(());
        }
        Err(error::corver(anyhow!(
            "this Scorer was opened in process {} and cannot be used in its fork {here}; open one there",
            self.process
        )))
    }
}

/// Of each completion.
fn scored(
    shared: &Mutex<corver_reward::Scorer>,
    rollouts: Vec<Rollout>,
    questions: &[Question],
) -> Result<Vec<Score>> {
    let broken = |_| anyhow!("an earlier call of this Scorer ended in a panic; open another one");
    let mut scorer = shared.lock().map_err(broken)?;
    let scored = scorer.score(&rollouts, questions).context("scoring the completions")?;
    let settings = scorer.settings();
    let mut scores = Vec::with_capacity(scored.completions.len());
    for ScoredCompletion { returns, advantage_signs, trace, .. } in scored.completions {
        let parts = ReturnParts::new(&trace, settings);
        scores.push(Score::new(parts, trace, Tokens { returns, labels: advantage_signs }));
    }
    Ok(scores)
}

/// `{"section.key": value}` as the command line's `--set` has it.
fn assignments(set: Option<&Bound<'_, PyDict>>) -> PyResult<Vec<String>> {
    let assignment = |(key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let key: String = key.extract()?;
        let json: String = value.py().import("json")?.call_method1("dumps", (value,))?.extract()?;
        let parsed = serde_json::from_str::<Value>(&json)
            .ok()
            .and_then(|json_value| toml::Value::try_from(json_value).ok());
        match parsed {
            Some(toml_value) => Ok(format!("{key} = {toml_value}")),
            None => Err(PyValueError::new_err(format!(
                "set[{key:?}] is {json}, which no setting can be"
            ))),
        }
    };
    set.into_iter().flatten().map(assignment).collect()
}

fn text(path: PathBuf) -> PyResult<String> {
    let told = |other| PyTypeError::new_err(format!("{other:?} is not UTF-8"));
    path.into_os_string().into_string().map_err(told)
}

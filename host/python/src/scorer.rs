//! The Python class `Scorer`: the reward, opened once and used from any thread.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, anyhow};
use corver_core::{Compatibility, CreditKind, Question, ReturnParts, Rollout, ScoredCompletion};
use corver_reward::config::{self, RewardConfig};
use corver_settings::Layers;
use pyo3::exceptions::{PyTypeError, PyUserWarning, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::Value;

use crate::input::{Columns, CompletionsArg, EvidenceArg, GoldsArg};
use crate::score::{Score, TokenSeries};
use crate::tokens::TokenizerCache;
use crate::{error, thread};

/// A name or path, or several.
#[derive(FromPyObject)]
enum PathsArg {
    One(PathBuf),
    Many(Vec<PathBuf>),
}

impl PathsArg {
    fn paths(self) -> Vec<PathBuf> {
        match self {
            Self::One(path) => vec![path],
            Self::Many(paths) => paths,
        }
    }

    fn texts(self) -> PyResult<Vec<String>> {
        self.paths().into_iter().map(path_text).collect()
    }
}

/// The reward: rules, judge, format check, extractor and corpus, opened once.
///
///     scorer = corver.Scorer(plugin="first.wasm", index="my-index", extractor="my-extractor")
///     scores = scorer.score(["<think>…</think><answer>Rome</answer>"], ["What is the capital of Italy?"], [["Rome"]])
///     print(scores[0].reward, scores[0].sentences)
///
/// plugin: the sentence rule: a path, or the name of a shipped rule. The weighted rewards of
///     several are added: ["first.wasm:0.7", "min.wasm:0.3"].
/// index: an index folder, a server's `http://HOST:PORT/#NAME`, or "demo". The counts of several
///     are added.
/// extractor: the model that reads triplets: a Hugging Face folder, the name of a downloaded model,
///     or "demo".
/// judge, format: response rules that replace the built-in answer judge and format check.
/// config: settings files (TOML), later ones over earlier ones; "demo" is the built-in one. Default:
///     the demo, if neither an index nor an extractor nor another part of your own is named.
/// settings: single settings over the files, by dotted key: {"reward.lambda_corver": 0.5}.
///     docs/configuration.md lists all.
///
/// Several threads may use one Scorer; they take turns. A forked process needs one of its own.
///
/// Raises SettingsError if a setting is invalid, CorverError if something is missing or cannot be
/// opened.
#[pyclass(frozen, name = "Scorer", module = "corver")]
pub struct PyScorer {
    shared: Arc<Mutex<corver_reward::Scorer>>,
    compatibility: Compatibility,
    rule: String,
    credit: CreditKind,
    /// Id of the process that opened the scorer.
    process: u32,
    tokenizers: TokenizerCache,
}

#[pymethods]
impl PyScorer {
    #[new]
    #[pyo3(signature = (
        plugin=None, index=None, extractor=None, *,
        judge=None, format=None, config=None, settings=None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn new(
        py: Python<'_>,
        plugin: Option<PathsArg>,
        index: Option<PathsArg>,
        extractor: Option<PathBuf>,
        judge: Option<PathBuf>,
        format: Option<PathBuf>,
        config: Option<PathsArg>,
        settings: Option<Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let files = config.map(PathsArg::paths).unwrap_or_default();
        let assignments = settings.as_ref().map(assignments).transpose()?.unwrap_or_default();
        let mut layers = Layers::new(&files, &assignments).map_err(error::settings)?;
        for (key, paths) in [("rule.plugin", plugin), ("corpus.index", index)] {
            if let Some(paths) = paths {
                layers.set(key, paths.texts()?);
            }
        }
        let single =
            [("extract.model", extractor), ("judge.plugin", judge), ("format.plugin", format)];
        for (key, path) in single {
            if let Some(path) = path {
                layers.set(key, path_text(path)?);
            }
        }
        if layers.is_demo_by_default() {
            let category = py.get_type::<PyUserWarning>();
            let message = c"using the built-in demo: no model, corpus or questions are named";
            PyErr::warn(py, &category, message, 1)?;
        }
        let merged = layers.settings().map_err(error::settings)?;
        let (resolved, reward_config) =
            config::resolve::<RewardConfig>(merged).map_err(error::settings)?;
        let compatibility = resolved.reward.compatibility;
        let opened = thread::without_gil(py, move || {
            corver_reward::Scorer::open(&reward_config, &resolved)
        })?
        .map_err(error::corver)?;
        Ok(Self {
            compatibility,
            rule: opened.rule().to_owned(),
            credit: opened.credit(),
            shared: Arc::new(Mutex::new(opened)),
            process: std::process::id(),
            tokenizers: TokenizerCache::default(),
        })
    }

    /// Scores completions: one Score for each, in order.
    ///
    /// completions: texts. Give token ids instead for the return of each token:
    /// completion_ids: token ids of each completion, as a trainer has them, without padding.
    /// tokenizer: the tokenizer of the ids: a Hugging Face tokenizer, or the path of a
    ///     tokenizer.json or of its folder. An object is read once.
    /// questions: the question of each completion. Rules and judges may read it; the built-in ones
    ///     do not.
    /// answers: golds of each question, as a list or as one text that `;` separates. Without golds
    ///     ([] or None) the answer reward is 0.
    /// titles, evidence: the title of the document that answers each question, and texts that
    ///     contain the answer (one, or a list), for rules that verify against them; or None.
    ///
    /// Other Python threads run during the call. Ctrl-C raises KeyboardInterrupt immediately; the
    /// batch is finished in the background.
    ///
    /// Raises ValueError if the lists differ in length, CorverError if a part fails. There is no
    /// partial result.
    #[pyo3(signature = (
        completions=None, questions=None, answers=None, *,
        titles=None, evidence=None, completion_ids=None, tokenizer=None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "one for each column of a dataset")]
    fn score(
        &self,
        py: Python<'_>,
        completions: Option<Vec<String>>,
        questions: Option<Vec<String>>,
        answers: Option<Vec<Option<GoldsArg>>>,
        titles: Option<Vec<Option<String>>>,
        evidence: Option<Vec<Option<EvidenceArg>>>,
        completion_ids: Option<Vec<Vec<u32>>>,
        tokenizer: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Vec<Score>> {
        self.check_process()?;
        let completions = match (completions, completion_ids, tokenizer) {
            (Some(texts), None, None) => CompletionsArg::Texts(texts),
            (None, Some(rows), Some(tokenizer)) => {
                CompletionsArg::Tokens(rows, self.tokenizers.get(&tokenizer)?)
            }
            _ => {
                return Err(PyValueError::new_err(
                    "give either completions, or completion_ids and their tokenizer",
                ));
            }
        };
        let are_texts = matches!(completions, CompletionsArg::Texts(_));
        let columns = Columns { questions, golds: answers, titles, evidence };
        let question_rows = columns.questions(completions.len())?;
        let shared = Arc::clone(&self.shared);
        let compatibility = self.compatibility;
        let result = thread::without_gil(py, move || {
            score_rollouts(&shared, completions.rollouts(compatibility)?, &question_rows)
        })?;
        let scores = result.map_err(error::corver)?;
        if are_texts {
            return Ok(scores.into_iter().map(Score::without_tokens).collect());
        }
        Ok(scores)
    }

    /// Name of the sentence rule; several names are joined with "+".
    #[getter]
    fn rule(&self) -> &str {
        &self.rule
    }

    /// Credit that the sentence rule uses: "all_tokens", "token_rewards" or "advantage_sign".
    #[getter]
    fn credit(&self) -> &'static str {
        match self.credit {
            CreditKind::AllTokens => "all_tokens",
            CreditKind::TokenRewards => "token_rewards",
            CreditKind::AdvantageSign => "advantage_sign",
        }
    }

    fn __repr__(&self) -> String {
        format!("<corver.Scorer {}>", self.rule)
    }
}

impl PyScorer {
    /// Refuses a forked process, in which the threads of the extractor do not exist.
    fn check_process(&self) -> PyResult<()> {
        let current = std::process::id();
        if current == self.process {
            return Ok(());
        }
        Err(error::corver(anyhow!(
            "this Scorer was opened in process {} and cannot be used in its fork {current}; open \
             one there",
            self.process
        )))
    }
}

fn score_rollouts(
    shared: &Mutex<corver_reward::Scorer>,
    rollouts: Vec<Rollout>,
    questions: &[Question],
) -> Result<Vec<Score>> {
    let mut scorer = shared.lock().map_err(|_| {
        anyhow!("an earlier call of this Scorer ended in a panic; open another one")
    })?;
    let scored = scorer.score(&rollouts, questions, None).context("scoring the completions")?;
    let settings = scorer.settings();
    let mut scores = Vec::with_capacity(scored.completions.len());
    for ScoredCompletion { returns, advantage_signs, trace, .. } in scored.completions {
        let parts = ReturnParts::new(&trace, settings);
        scores.push(Score::new(parts, trace, TokenSeries { returns, advantage_signs }));
    }
    Ok(scores)
}

/// Converts `{"section.key": value}` to assignments as the command line's `--set` takes them.
fn assignments(settings: &Bound<'_, PyDict>) -> PyResult<Vec<String>> {
    let mut assignments = Vec::with_capacity(settings.len());
    for (key, value) in settings {
        let name: String = key.extract()?;
        let json: String =
            settings.py().import("json")?.call_method1("dumps", (value,))?.extract()?;
        // Python writes NaN and Infinity, which JSON lacks, and null, which TOML lacks.
        let toml_value = serde_json::from_str::<Value>(&json)
            .ok()
            .and_then(|json_value| toml::Value::try_from(json_value).ok());
        let Some(toml_value) = toml_value else {
            return Err(PyValueError::new_err(format!(
                "settings[{name:?}] is {json}, which no setting can be"
            )));
        };
        assignments.push(format!("{name} = {toml_value}"));
    }
    Ok(assignments)
}

fn path_text(path: PathBuf) -> PyResult<String> {
    path.into_os_string()
        .into_string()
        .map_err(|other| PyTypeError::new_err(format!("{other:?} is not UTF-8")))
}

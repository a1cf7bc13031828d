//! A run's settings: defaults < `--config` files < `--set` < flags. Sections are named after the stages.
//!
//! The defaults are the paper's. Without `--config` a run uses `configs/demo.toml`, which is built in.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use corver_core::{AdvantageSettings, RewardSettings, Sampling};
use corver_remote::RemoteSettings;
use corver_study::evaluate::EvaluateSettings;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::rules::{Plugin, Plugins};
use crate::source::{Source, Sources};

/// The demo's settings, which every command falls back on.
const DEMO: &str = include_str!("../../../configs/demo.toml");

/// What stands for the built-in demo in place of a path.
pub const DEMO_SOURCE: &str = "demo";

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub run: RunSection,
    pub question: QuestionSection,
    pub policy: PolicySection,
    pub rollout: Sampling,
    pub extract: ExtractSection,
    pub corpus: CorpusSection,
    pub rule: RuleSection,
    pub judge: GraderSection,
    pub format: GraderSection,
    pub reward: RewardSettings,
    pub advantage: AdvantageSettings,
    #[cfg(feature = "torch")]
    pub update: corver_learn::LearnSettings,
    /// Read by builds that can train.
    #[cfg(not(feature = "torch"))]
    pub update: Map<String, Value>,
    pub checkpoint: CheckpointSection,
    pub eval: EvalSection,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunSection {
    pub seed: u64,
    /// Optimiser steps.
    pub steps: usize,
    /// Where the policy runs: auto, cpu or cuda:N.
    pub device: String,
    /// CPU threads that libtorch uses within one operation; 0 leaves it to libtorch.
    pub threads: usize,
}

impl Default for RunSection {
    fn default() -> Self {
        Self { seed: 42, steps: 100, device: "auto".into(), threads: 0 }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QuestionSection {
    /// Question file to train on, or "demo".
    pub train: String,
    /// Question file to evaluate on before and after; empty evaluates nothing.
    pub eval: String,
    /// Only the first so many evaluation questions; 0 takes all.
    pub eval_limit: usize,
    pub prompts_per_step: usize,
}

impl Default for QuestionSection {
    fn default() -> Self {
        Self { train: String::new(), eval: String::new(), eval_limit: 0, prompts_per_step: 24 }
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicySection {
    /// Hugging Face folder, or "demo".
    pub model: String,
    /// System prompt of training rollouts; empty sends none.
    pub system_prompt: String,
    /// auto (bf16 on a GPU, f32 on the CPU), f32 or bf16.
    #[cfg(feature = "torch")]
    pub precision: corver_learn::Precision,
    /// Read by builds that can train.
    #[cfg(not(feature = "torch"))]
    pub precision: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExtractSection {
    /// Extractor bundle, or "demo".
    pub bundle: String,
    /// cpu, or cuda:N where ONNX Runtime is a build with CUDA.
    pub device: String,
}

impl Default for ExtractSection {
    fn default() -> Self {
        Self { bundle: String::new(), device: "cpu".into() }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CorpusSection {
    /// Index folder, "demo", `URL#NAME` of an index on a server, or a list of those whose counts are added.
    pub index: Sources,
    /// `compatible` equals the official engine, sub-sampling included; `exact` counts every match of the same rule; `span`
    /// counts the stretches of `max_diff_tokens` tokens that hold all words.
    pub mode: corver_corpus::Mode,
    /// Clauses with more hits than this are sub-sampled in `compatible` mode.
    pub max_clause_freq: u64,
    /// Window in tokens. Not set: the paper's, or the demo's where the index is the demo's.
    pub max_diff_tokens: Option<u64>,
    /// Memory for the sorted positions of frequent words, per index folder, in MiB: they are then not sorted again.
    pub cache_mib: u64,
    /// How to deal with servers.
    pub remote: RemoteSettings,
}

impl CorpusSection {
    /// How index folders are opened.
    pub fn open_options(&self) -> corver_corpus::OpenOptions {
        let cache_bytes = self.cache_mib.saturating_mul(1 << 20);
        corver_corpus::OpenOptions { cache_bytes, ..corver_corpus::OpenOptions::default() }
    }

    /// The window; see [`window`].
    pub fn window(&self) -> u64 {
        self.max_diff_tokens.unwrap_or_else(|| window(self.index.is_demo()))
    }
}

/// The paper's window, in tokens. The demo's articles are short, and a window that reaches the neighbouring article
/// loses matches at the border between them.
pub fn window(of_demo: bool) -> u64 {
    if of_demo { corver_demo::WINDOW } else { 1_000 }
}

impl Default for CorpusSection {
    fn default() -> Self {
        Self {
            index: Sources::One(String::new()),
            mode: corver_corpus::Mode::Compatible,
            max_clause_freq: 500_000,
            max_diff_tokens: None,
            cache_mib: corver_corpus::OpenOptions::default().cache_bytes >> 20,
            remote: RemoteSettings::default(),
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RuleSection {
    /// The reward rule, a WebAssembly file; or a list of them, whose rewards are added with their weights.
    pub plugin: Plugins,
    /// Handed to the rule as it is; `corver-host plugin check` prints what a rule takes. With several rules: a table for
    /// each, under its name.
    pub settings: Map<String, Value>,
    /// What each rule may use and answer, `judge` and `format` included.
    pub limits: corver_rules::Limits,
}

impl Default for RuleSection {
    fn default() -> Self {
        Self {
            plugin: Plugins::One("first.wasm".into()),
            settings: Map::new(),
            limits: corver_rules::Limits::default(),
        }
    }
}

/// A response-level reward.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GraderSection {
    /// A response rule, a WebAssembly file; empty stands for the paper's, which is built in.
    pub plugin: String,
    /// Handed to the rule as it is.
    pub settings: Map<String, Value>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointSection {
    /// Steps between checkpoints.
    pub every: usize,
    /// Newest checkpoints kept.
    pub keep: usize,
}

impl Default for CheckpointSection {
    fn default() -> Self {
        Self { every: 50, keep: 4 }
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EvalSection {
    /// System prompt of evaluation; empty sends none.
    pub system_prompt: String,
    /// Added to it when the trained policy answers (the paper's anti-loop line).
    pub trained_suffix: String,
    pub answers: EvaluateSettings,
}

/// Merges `files` and `overrides` ("section.key=value") over the defaults.
pub fn load(files: &[PathBuf], overrides: &[String]) -> Result<Config> {
    let mut merged = Map::new();
    let demo = [PathBuf::from(DEMO_SOURCE)];
    for path in if files.is_empty() { &demo } else { files } {
        let values = read(path)?;
        check_keys(&values).with_context(|| format!("in {}", path.display()))?;
        merge(&mut merged, values);
    }
    for text in overrides {
        let values = parse_override(text)?;
        check_keys(&values).with_context(|| format!("in --set {text}"))?;
        merge(&mut merged, values);
    }
    let mut config: Config = serde_path_to_error::deserialize(Value::Object(merged))
        .map_err(|error| anyhow!("setting `{}`: {}", error.path(), error.inner()))?;
    config.corpus.max_diff_tokens = Some(config.corpus.window());
    Ok(config)
}

impl Config {
    /// The same with absolute paths, so that it stands for itself in any folder.
    pub fn with_absolute_paths(mut self) -> Result<Self> {
        let mut paths =
            vec![&mut self.question.train, &mut self.question.eval, &mut self.policy.model, &mut self.extract.bundle];
        let is_folder = |text: &&mut String| matches!(text.parse(), Ok(Source::Folder(_)));
        paths.extend(self.corpus.index.texts_mut().iter_mut().filter(is_folder));
        for path in paths.into_iter().filter(|path| !path.is_empty() && *path != DEMO_SOURCE) {
            let absolute = std::path::absolute(&*path).with_context(|| format!("the path {path}"))?;
            *path = absolute.into_os_string().into_string().map_err(|path| anyhow!("{path:?} is not UTF-8"))?;
        }
        let graders = [&mut self.judge.plugin, &mut self.format.plugin].into_iter().filter(|text| !text.is_empty());
        for text in self.rule.plugin.texts_mut().iter_mut().chain(graders) {
            *text = text.parse::<Plugin>()?.with_absolute_path()?.to_string();
        }
        Ok(self)
    }
}

/// The settings in which two resolved configurations differ, as `section.key`.
pub fn differences(one: &str, other: &str) -> Result<Vec<String>> {
    fn collect(one: Option<&Value>, other: Option<&Value>, key: &str, into: &mut Vec<String>) {
        if let (Some(Value::Object(one)), Some(Value::Object(other))) = (one, other) {
            let keys: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            let dotted = |name: &String| if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
            keys.into_iter().for_each(|name| collect(one.get(name), other.get(name), &dotted(name), into));
        } else if one != other {
            into.push(key.to_owned());
        }
    }
    let mut differences = Vec::new();
    collect(Some(&toml::from_str(one)?), Some(&toml::from_str(other)?), "", &mut differences);
    Ok(differences)
}

fn read(path: &Path) -> Result<Map<String, Value>> {
    if path == Path::new(DEMO_SOURCE) {
        return toml::from_str(DEMO).context("in the built-in demo configuration");
    }
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read the configuration {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("{} is not valid TOML", path.display()))
}

/// `a.b=value`: the value is TOML, or else a plain string.
fn parse_override(text: &str) -> Result<Map<String, Value>> {
    let Some((key, value)) = text.split_once('=') else {
        bail!("--set takes section.key=value, not {text:?}");
    };
    let line = |value: &str| toml::from_str::<Map<String, Value>>(&format!("{} = {value}", key.trim()));
    let quoted = || line(&Value::String(value.trim().to_owned()).to_string());
    line(value.trim()).or_else(|_| quoted()).with_context(|| format!("--set {text}"))
}

fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(old)), Value::Object(new)) => merge(old, new),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

/// Refuses keys that no setting has, and names the nearest that exists.
fn check_keys(values: &Map<String, Value>) -> Result<()> {
    let Value::Object(known) = serde_json::to_value(Config::default())? else { unreachable!("a struct is an object") };
    check_section(values, &known, "")
}

fn check_section(values: &Map<String, Value>, known: &Map<String, Value>, section: &str) -> Result<()> {
    for (key, value) in values {
        let Some(default) = known.get(key) else {
            // By its last part, so that `steps` finds `run.steps`.
            let likeness = |name: &String| strsim::jaro(name.rsplit('.').next().unwrap_or(name), key);
            let nearest = names(known, section).into_iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
            let hint = nearest.map_or(String::new(), |nearest| format!("; did you mean `{nearest}`?"));
            bail!("unknown setting `{section}{key}`{hint}");
        };
        // Empty here means free-form: the rule's own settings.
        if let (Value::Object(values), Value::Object(known)) = (value, default)
            && !known.is_empty()
        {
            check_section(values, known, &format!("{section}{key}."))?;
        }
    }
    Ok(())
}

/// Every setting and section under `section`, with its whole name.
fn names(known: &Map<String, Value>, section: &str) -> Vec<String> {
    known
        .iter()
        .flat_map(|(key, value)| {
            let name = format!("{section}{key}");
            let deeper = value.as_object().map_or(Vec::new(), |known| names(known, &format!("{name}.")));
            std::iter::once(name).chain(deeper)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_sources_win() {
        let config = load(&[], &["run.steps=3".into(), "rule.plugin=min.wasm".into()]).unwrap();
        assert_eq!(config.run.steps, 3);
        assert_eq!(config.rule.plugin, Plugins::One("min.wasm".into()));
        assert_eq!(config.policy.model, DEMO_SOURCE);
    }

    #[test]
    fn a_resolved_configuration_means_the_same_in_any_folder() {
        let plugins = "rule.plugin=[\"mine/r.wasm:0.5\", \"min.wasm\"]";
        let config = load(&[], &["question.eval=e.json".into(), plugins.into()]).unwrap();
        let config = config.with_absolute_paths().unwrap();
        assert!(Path::new(&config.question.eval).is_absolute());
        let plugins = config.rule.plugin.parse().unwrap();
        assert!(plugins[0].path.is_absolute() && plugins[0].weight == 0.5, "{plugins:?}");
        assert_eq!((config.question.train.as_str(), config.policy.model.as_str()), (DEMO_SOURCE, DEMO_SOURCE));
        assert_eq!(plugins[1].path, Path::new("min.wasm"));
    }

    #[test]
    fn differences_are_named() {
        let (one, other) = ("[run]\nsteps = 1\nseed = 2", "[run]\nsteps = 3\nseed = 2\n[rule.settings]\nx = 1");
        assert_eq!(differences(one, other).unwrap(), ["rule", "run.steps"]);
    }

    #[test]
    fn the_window_is_the_papers_unless_the_index_is_the_demos() {
        let of = |overrides: &[String]| load(&[], overrides).unwrap().corpus.max_diff_tokens;
        assert_eq!(of(&[]), Some(corver_demo::WINDOW));
        assert_eq!(of(&["corpus.index=elsewhere".into()]), Some(1_000));
        assert_eq!(of(&["corpus.max_diff_tokens=7".into()]), Some(7));
    }

    #[test]
    fn an_index_may_be_several_and_elsewhere() {
        let of = |overrides: &[String]| load(&[], overrides).map(|config| config.corpus.index.parse().unwrap().len());
        assert_eq!(of(&["corpus.index=[\"wiki\", \"http://host/#books\"]".into()]).unwrap(), 2);
        assert_eq!(of(&["corpus.index=http://host/#books".into()]).unwrap(), 1);
        let error = load(&[], &["corpus.index=7".into()]).unwrap_err();
        assert!(
            format!("{error:#}").contains("corpus.index") && format!("{error:#}").contains("URL#NAME"),
            "{error:#}"
        );
        let error = load(&[], &["corpus.remote.patience=7".into()]).unwrap_err();
        assert!(format!("{error:#}").contains("did you mean `corpus.remote.patience_s`?"), "{error:#}");
    }

    #[test]
    fn an_unknown_key_names_its_nearest_neighbour() {
        let error = load(&[], &["rollout.temprature=1".into()]).unwrap_err();
        assert!(format!("{error:#}").contains("did you mean `rollout.temperature`?"), "{error:#}");
        let error = load(&[], &["steps=1".into()]).unwrap_err();
        assert!(format!("{error:#}").contains("did you mean `run.steps`?"), "{error:#}");
        assert!(load(&[], &["rule.settings.anything=1".into()]).is_ok());
    }

    #[test]
    fn the_defaults_are_the_papers() {
        let config = Config::default();
        assert_eq!((config.run.steps, config.run.seed, config.question.prompts_per_step), (100, 42, 24));
        assert_eq!((config.corpus.max_clause_freq, config.corpus.window()), (500_000, 1_000));
        assert_eq!((config.rollout.num_generations, config.rollout.max_completion_length), (16, 1024));
    }

    #[test]
    fn every_shipped_configuration_is_valid() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
        let mut seen = 0;
        for folder in [folder.clone(), folder.join("ablations"), folder.join("rules")] {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.extension().is_some_and(|extension| extension == "toml") {
                    load(std::slice::from_ref(&path), &[])
                        .unwrap_or_else(|error| panic!("{}: {error:#}", path.display()));
                    seen += 1;
                }
            }
        }
        assert!(seen >= 15, "only {seen} configurations found");
    }
}

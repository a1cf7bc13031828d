//! Files and single settings, merged into [`Settings`].
//!
//! The order is: built-in defaults, files in their order, single settings (`--set`, and flags,
//! which are short for some of them), and in a comparison the file of an arm. A later layer
//! overrides an earlier one.
//!
//! The settings of the built-in demo apply below all layers if no layer names a part of the user's
//! own: see [`PARTS`].

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Map, Value};

use crate::Settings;
use crate::schema::{check_names, declared, type_in_words};

/// Name of the demo's configuration, models, corpus and questions.
pub const DEMO: &str = "demo";

/// Longest file of settings, bytes.
const MAX_BYTES: u64 = 1 << 20;

const TRAINING_PROMPT: &str = "policy.system_prompt";
const EVALUATION_PROMPT: &str = "eval.system_prompt";

/// Settings of the built-in demo.
const DEMO_SETTINGS: &str = include_str!("../../../configs/demo.toml");

/// Settings that name a part which the demo has, too. If one of them has another value than `demo`,
/// the demo's settings do not apply.
pub const PARTS: [&str; 15] = [
    "question.train",
    "question.eval",
    "policy.model",
    "policy.adapter",
    "engine.kind",
    "engine.url",
    "engine.model",
    "extract.model",
    "extract.prompt",
    "corpus.index",
    "corpus.pack",
    "backends.nli.model",
    "backends.chat.endpoint",
    "backends.chat.model",
    "backends.passages.index",
];

/// Settings of several sources, of which a later one overrides an earlier one.
#[derive(Debug, Clone, Default)]
pub struct Layers {
    values: Map<String, Value>,
    /// True if the user named a configuration file, or an input that is no setting.
    has_own_part: bool,
}

impl Layers {
    /// Reads files, of which `demo` is the built-in one, then single settings, written
    /// `section.key=value`.
    ///
    /// # Errors
    /// Fails if a file cannot be read, or names an unknown setting.
    pub fn new(files: &[PathBuf], set: &[String]) -> Result<Self> {
        let mut layers = Self::default();
        // The demo is the lowest layer, in any order of the command line.
        let mut ordered: Vec<&PathBuf> = files.iter().collect();
        ordered.sort_by_key(|path| path.as_os_str() != DEMO);
        for path in ordered {
            layers.add_file(path)?;
            layers.has_own_part = true;
        }
        for text in set {
            layers.assign(text)?;
        }
        Ok(layers)
    }

    /// Adds a file of changes to the settings so far. It is no configuration of its own.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or names an unknown setting.
    pub fn add_file(&mut self, path: &Path) -> Result<()> {
        let values = read(path)?;
        check_names(&values).with_context(|| format!("in {}", path.display()))?;
        merge(&mut self.values, values);
        Ok(())
    }

    /// Adds a single setting, written `section.key=value`. The value is TOML, or else a plain
    /// string.
    ///
    /// # Errors
    /// Fails if there is no such setting.
    pub fn assign(&mut self, text: &str) -> Result<()> {
        let values = parse_assignment(text)?;
        check_names(&values).with_context(|| format!("in --set {text}"))?;
        merge(&mut self.values, values);
        Ok(())
    }

    /// Sets an existing setting, for a flag of the command line.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) {
        assert!(declared().iter().any(|declared| declared.key == key), "there is no setting {key}");
        merge(&mut self.values, nested(key, value.into()));
    }

    /// Records that the command has an input of the user's own that is no setting, such as a file of
    /// demonstrations.
    pub fn add_own_part(&mut self) {
        self.has_own_part = true;
    }

    /// Returns true if the demo's settings apply: no layer names a part of the user's own.
    #[must_use]
    pub fn is_demo(&self) -> bool {
        !self.has_own_part && PARTS.iter().all(|key| find(&self.values, key).is_none_or(is_demo))
    }

    /// Returns true if the demo's settings apply although the user does not name the demo.
    #[must_use]
    pub fn is_demo_by_default(&self) -> bool {
        !self.has_own_part && PARTS.iter().all(|key| find(&self.values, key).is_none())
    }

    /// Returns the merged settings, which override the defaults or the demo's.
    ///
    /// # Errors
    /// Fails if a setting has a value of the wrong type; the message names it.
    pub fn settings(&self) -> Result<Settings> {
        let mut merged = if self.is_demo() { read(Path::new(DEMO))? } else { Map::new() };
        merge(&mut merged, self.values.clone());
        // A policy that is trained with a prompt of its own is evaluated with the same.
        if let Some(prompt @ Value::String(_)) = find(&self.values, TRAINING_PROMPT)
            && find(&self.values, EVALUATION_PROMPT).is_none()
        {
            merge(&mut merged, nested(EVALUATION_PROMPT, prompt.clone()));
        }
        serde_path_to_error::deserialize(Value::Object(merged)).map_err(|error| {
            let key = error.path().to_string();
            match type_in_words(&key) {
                Some(expected) => {
                    anyhow!("setting `{key}`: {}; it must be {expected}", got(&error))
                }
                None => anyhow!("setting `{key}`: {}", error.inner()),
            }
        })
    }
}

/// Returns serde's message without the Rust type that it expected.
fn got(error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    let message = error.inner().to_string();
    message.split(", expected ").next().unwrap_or_default().to_owned()
}

fn is_demo(value: &Value) -> bool {
    match value {
        Value::String(text) => text == DEMO,
        Value::Array(values) => !values.is_empty() && values.iter().all(is_demo),
        // A phase of a curriculum takes questions of a file.
        Value::Object(share) => share.get("file").is_some_and(is_demo),
        _ => false,
    }
}

/// Returns the settings in which only `key`, written `section.key`, has a value.
fn nested(key: &str, value: Value) -> Map<String, Value> {
    let (sections, name) =
        key.rsplit_once('.').map_or((None, key), |(sections, name)| (Some(sections), name));
    let values = Map::from_iter([(name.to_owned(), value)]);
    match sections {
        None => values,
        Some(sections) => nested(sections, Value::Object(values)),
    }
}

fn find<'a>(values: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    let mut names = key.split('.');
    let mut value = values.get(names.next()?)?;
    for name in names {
        value = value.get(name)?;
    }
    Some(value)
}

fn read(path: &Path) -> Result<Map<String, Value>> {
    if path == Path::new(DEMO) {
        return toml::from_str(DEMO_SETTINGS).context("in the built-in demo configuration");
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
        .with_context(|| format!("cannot read the configuration {}", path.display()))?;
    if bytes.len() as u64 > MAX_BYTES {
        bail!("the configuration {} is longer than {MAX_BYTES} bytes", path.display());
    }
    let text = String::from_utf8(bytes)
        .with_context(|| format!("the configuration {} is not UTF-8", path.display()))?;
    let text = text.trim_start_matches('\u{feff}'); // editors of Windows write a byte-order mark
    toml::from_str(text).with_context(|| format!("{} is not valid TOML", path.display()))
}

fn parse_assignment(text: &str) -> Result<Map<String, Value>> {
    let Some((key, value)) = text.split_once('=') else {
        bail!("--set takes section.key=value, not {text:?}");
    };
    let (key, value) = (key.trim(), value.trim());
    if let Ok(values) = toml::from_str(&format!("{key} = {value}")) {
        return Ok(values);
    }
    let quoted = Value::String(value.to_owned());
    toml::from_str(&format!("{key} = {quoted}")).with_context(|| format!("--set {text}"))
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

/// Returns the settings in which two written configurations differ, as `section.key`.
///
/// # Errors
/// Fails if one of them is not valid TOML.
pub fn differences(one: &str, other: &str) -> Result<Vec<String>> {
    let mut differences = Vec::new();
    let one_value: Value = toml::from_str(one)?;
    let other_value: Value = toml::from_str(other)?;
    collect_differences(Some(&one_value), Some(&other_value), "", &mut differences);
    Ok(differences)
}

fn collect_differences(
    one: Option<&Value>,
    other: Option<&Value>,
    key: &str,
    into: &mut Vec<String>,
) {
    if let (Some(Value::Object(one)), Some(Value::Object(other))) = (one, other) {
        let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
        for name in names {
            let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
            collect_differences(one.get(name), other.get(name), &key, into);
        }
    } else if one != other {
        into.push(key.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TrainQuestions;

    fn load(files: &[&str], set: &[&str]) -> Result<Settings> {
        let files: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
        let set: Vec<String> = set.iter().map(ToString::to_string).collect();
        Layers::new(&files, &set)?.settings()
    }

    fn demo() -> Settings {
        toml::from_str(DEMO_SETTINGS).unwrap()
    }

    #[test]
    fn long_configuration_is_refused_before_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.toml");
        // A terabyte without content: whoever reads it all has no memory left.
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        let error = load(&[path.to_str().unwrap()], &[]).unwrap_err().to_string();
        assert!(error.ends_with("run.toml is longer than 1048576 bytes"), "{error}");
    }

    #[test]
    fn default_settings_match_paper() {
        let settings = Settings::default();
        assert_eq!(
            (settings.run.steps, settings.run.seed, settings.question.prompts_per_step),
            (100, 42, 24)
        );
        assert_eq!(
            (settings.rollout.num_generations, settings.rollout.max_completion_length),
            (16, 1024)
        );
        assert_eq!(
            (settings.rollout.max_prompt_length, settings.corpus.max_diff_tokens),
            (Some(256), 1000)
        );
        assert_eq!(
            (settings.corpus.max_clause_freq, settings.update.learning_rate),
            (500_000, 1e-5)
        );
        assert_eq!(
            (settings.update.lora.r, settings.update.lora.alpha, settings.update.loss.beta),
            (128, 256.0, 0.001)
        );
        assert!(settings.policy.system_prompt.contains("never pronouns"));
        assert!(settings.eval.system_prompt.ends_with("<answer>I don't know</answer>"));
    }

    /// App. prompt: no baseline trains under CorVer's prompt, each of theirs requires both blocks, and
    /// all trained policies answer under one evaluation prompt.
    #[test]
    fn baseline_configs_use_their_own_prompts() {
        let own = Settings::default();
        for (method, words) in [
            (
                "fspo",
                "You must show the reasoning process within <think> </think> tags, and ONLY return the FINAL ANSWER",
            ),
            (
                "knowrl",
                "</think>\n\n<answer>\nMy final, factual answer based on careful reasoning.\n</answer>\n\nImportant:",
            ),
            ("rlfh", &own.eval.system_prompt),
            ("forag", &own.eval.system_prompt),
        ] {
            let file = format!(
                "{}/../../configs/baselines/paper/{method}.toml",
                env!("CARGO_MANIFEST_DIR")
            );
            let settings = load(&[&file], &[]).unwrap();
            let prompt = settings.policy.system_prompt;
            assert!(prompt.contains(words), "{method}: {prompt}");
            assert!(
                prompt.contains("<think>") && prompt.contains("<answer>"),
                "{method}: {prompt}"
            );
            assert!(!prompt.contains("never pronouns"), "{method}: {prompt}");
            assert_eq!(settings.eval, own.eval, "{method}");
        }
    }

    #[test]
    fn evaluation_has_prompt_of_training_unless_set() {
        let own = Settings::default();
        let prompts = |set: &[&str]| {
            let settings = load(&[], &[&["policy.model=own"], set].concat()).unwrap();
            [settings.policy.system_prompt, settings.eval.system_prompt]
        };
        assert_eq!(prompts(&[]), [own.policy.system_prompt.clone(), own.eval.system_prompt]);
        assert_eq!(prompts(&["policy.system_prompt=a"]), ["a", "a"]);
        assert_eq!(prompts(&["policy.system_prompt=a", "eval.system_prompt=b"]), ["a", "b"]);
        assert_eq!(prompts(&["eval.system_prompt=b"]), [own.policy.system_prompt.as_str(), "b"]);
    }

    #[test]
    fn demo_is_default_without_own_parts() {
        assert_eq!(load(&[], &[]).unwrap(), demo());
        assert_eq!(load(&["demo"], &[]).unwrap(), demo());
        assert_eq!(load(&[], &["corpus.index=[]"]).unwrap(), Settings::default());
        let settings =
            load(&[], &["run.steps=3", "rule.plugin=min.wasm", "corpus.index=demo"]).unwrap();
        assert_eq!(settings.policy.model.as_deref(), Some(DEMO));
        assert_eq!((settings.run.steps, settings.rule.plugin), (3, vec!["min.wasm".to_owned()]));
    }

    /// No value of the demo reaches settings that name something of the user's.
    #[test]
    fn naming_own_part_drops_demo_settings() {
        for key in PARTS {
            let own = match key {
                "engine.kind" => "vllm",
                "backends.passages.index" => "['own']",
                _ => "own",
            };
            let mut expected = Map::new();
            merge(&mut expected, parse_assignment(&format!("{key}={own}")).unwrap());
            let expected: Settings = serde_json::from_value(Value::Object(expected)).unwrap();
            assert_eq!(load(&[], &[&format!("{key}={own}")]).unwrap(), expected, "{key}");
        }
        let phases = "question.train=[[{ file = 'own.jsonl', take = 3 }]]";
        let expected = TrainQuestions::Phases(vec![vec![crate::PhaseShare {
            file: "own.jsonl".into(),
            take: 3,
        }]]);
        let settings = load(&[], &[phases]).unwrap();
        assert_eq!((settings.question.train, settings.policy.model), (Some(expected), None));
        let mut layers = Layers::default();
        layers.add_own_part();
        assert_eq!(layers.settings().unwrap(), Settings::default());
    }

    /// Each setting of the demo's, one by one: only `--config demo` brings it to a command that
    /// names a model.
    #[test]
    fn demo_underlies_own_parts_only_if_requested() {
        let demo_values: Map<String, Value> = toml::from_str(DEMO_SETTINGS).unwrap();
        let default = serde_json::to_value(Settings::default()).unwrap();
        let own = serde_json::to_value(load(&[], &["policy.model=own"]).unwrap()).unwrap();
        let on_purpose =
            serde_json::to_value(load(&["demo"], &["policy.model=own"]).unwrap()).unwrap();
        let mut changed = 0;
        for key in declared()
            .iter()
            .filter(|declared| declared.setting.is_some())
            .map(|declared| &declared.key)
        {
            let pointer = format!("/{}", key.replace('.', "/"));
            if key == "policy.model" {
                continue;
            }
            assert_eq!(own.pointer(&pointer), default.pointer(&pointer), "{key}");
            if let Some(value) = find(&demo_values, key) {
                let kept = on_purpose.pointer(&pointer).unwrap();
                assert!(
                    kept == value || *kept == Value::Array(vec![value.clone()]),
                    "{key}: {kept}"
                );
                changed += 1;
            }
        }
        assert!(changed >= 15, "the demo sets {changed} settings");
    }

    #[test]
    fn later_layers_override_earlier_ones() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let first = write("first.toml", "[run]\nsteps = 1\nseed = 1\n[question]\ntrain = 'a'");
        let second = write("second.toml", "[run]\nsteps = 2");
        let arm = write("arm.toml", "[question]\ntrain = 'c'");
        let second_again = second.clone();
        let mut layers = Layers::new(&[first, second], &["question.train=b".to_owned()]).unwrap();
        let settings = layers.settings().unwrap();
        assert_eq!((settings.run.steps, settings.run.seed), (2, 1));
        let over_demo = Layers::new(&[second_again, DEMO.into()], &[]).unwrap().settings().unwrap();
        assert_eq!((over_demo.run.steps, over_demo.policy), (2, demo().policy));
        assert_eq!(settings.question.train, Some(TrainQuestions::Set("b".into())));
        layers.add_file(&arm).unwrap();
        assert_eq!(
            layers.settings().unwrap().question.train,
            Some(TrainQuestions::Set("c".into()))
        );
    }

    #[test]
    fn arm_file_without_own_part_retains_demo() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("arm.toml");
        std::fs::write(&path, "[reward]\nlambda_judge = 0.0").unwrap();
        let mut layers = Layers::default();
        layers.add_file(&path).unwrap();
        assert!(layers.is_demo());
        std::fs::write(&path, "[question]\ntrain = 'pool.jsonl'").unwrap();
        layers.add_file(&path).unwrap();
        assert!(!layers.is_demo());
    }

    #[test]
    fn invalid_setting_value_is_named() {
        let refusal = |set: &str| format!("{:#}", load(&[], &[set]).unwrap_err());
        let index = "setting `corpus.index`: expected a string or a list of strings";
        assert!(refusal("corpus.index=7").contains(index), "{}", refusal("corpus.index=7"));
        assert!(refusal("corpus.index=").contains("an empty text names nothing"));
        assert!(refusal("policy.precision=f16").contains("setting `policy.precision`"));
        assert!(
            refusal("update.optimizer.beta1=high").contains("setting `update.optimizer.beta1`")
        );
        assert!(
            refusal("run.device=gpu")
                .contains("the device \"gpu\" is not auto, cpu, cuda or cuda:N")
        );
        for set in ["rule.settings.tiers.x=nan", "rule.settings.tiers.x=[1.0, inf]"] {
            assert!(
                refusal(set).contains("`rule.settings.tiers.x` is not a finite number"),
                "{}",
                refusal(set)
            );
        }
        assert!(refusal("steps=1").contains("did you mean `run.steps`?"));
    }

    #[test]
    fn settings_differences_are_named() {
        let (one, other) =
            ("[run]\nsteps = 1\nseed = 2", "[run]\nsteps = 3\nseed = 2\n[rule.settings]\nx = 1");
        assert_eq!(differences(one, other).unwrap(), ["rule", "run.steps"]);
    }
}

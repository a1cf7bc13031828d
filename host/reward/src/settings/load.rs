//! Merges files and single settings into [`Settings`].

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Map, Value};

use super::{DEMO, Settings, keys};

/// The demo's settings, which stand in where no file is named.
const DEMO_SETTINGS: &str = include_str!("../../../../configs/demo.toml");

impl Settings {
    /// The defaults, then the files (`demo` stands for the built-in one, which is also taken where there is none), then single
    /// settings, written `section.key=value`.
    ///
    /// # Errors
    /// A file that cannot be read, a setting that is unknown or of the wrong kind; the message names it.
    pub fn load(files: &[PathBuf], set: &[String]) -> Result<Self> {
        let mut merged = Map::new();
        let demo = [PathBuf::from(DEMO)];
        for path in if files.is_empty() { &demo } else { files } {
            let values = read(path)?;
            keys::check(&values).with_context(|| format!("in {}", path.display()))?;
            merge(&mut merged, values);
        }
        for text in set {
            let values = parse_override(text)?;
            keys::check(&values).with_context(|| format!("in --set {text}"))?;
            merge(&mut merged, values);
        }
        serde_path_to_error::deserialize(Value::Object(merged))
            .map_err(|error| anyhow!("setting `{}`: {}", error.path(), error.inner()))
    }
}

fn read(path: &Path) -> Result<Map<String, Value>> {
    if path == Path::new(DEMO) {
        return toml::from_str(DEMO_SETTINGS).context("in the built-in demo configuration");
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

#[cfg(test)]
mod tests {
    use super::super::OneOrMany;
    use super::*;

    fn load(config: &[&Path], set: &[&str]) -> Result<Settings> {
        let config: Vec<_> = config.iter().map(PathBuf::from).collect();
        let set: Vec<_> = set.iter().map(ToString::to_string).collect();
        Settings::load(&config, &set)
    }

    #[test]
    fn later_values_override_earlier_ones() {
        let settings = load(&[], &["run.steps=3", "run.steps=4", "rule.plugin=min.wasm"]).unwrap();
        assert_eq!(settings.run.steps, 4);
        assert_eq!(settings.rule.plugin, OneOrMany::One("min.wasm".into()));
        assert_eq!(settings.policy.model, DEMO);
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_named() {
        let told = |set: &str| format!("{:#}", load(&[], &[set]).unwrap_err());
        assert!(told("corpus.index=7").contains("setting `corpus.index`: expected a string or a list of strings"));
        assert!(told("policy.precision=f16").contains("setting `policy.precision`"));
        assert!(told("update.optimizer.beta1=high").contains("setting `update.optimizer.beta1`"));
        for set in ["rule.settings.tiers.x=nan", "rule.settings.tiers.x=[1.0, inf]"] {
            assert!(told(set).contains("`rule.settings.tiers.x` is not a finite number"), "{}", told(set));
        }
        assert!(told("steps=1").contains("did you mean `run.steps`?"));
    }

    /// Every setting with every odd value: understood or refused, and a refusal names the setting.
    #[test]
    fn odd_values_of_every_setting_are_understood_or_refused() {
        fn keys(prefix: &str, value: &Value, found: &mut Vec<String>) {
            found.push(prefix.to_owned());
            for (name, value) in value.as_object().into_iter().flatten() {
                keys(&format!("{prefix}.{name}"), value, found);
            }
        }
        let mut all = Vec::new();
        for (name, section) in serde_json::to_value(Settings::default()).unwrap().as_object().unwrap() {
            keys(name, section, &mut all);
        }
        assert!(all.len() > 70, "{all:?}");
        let odd = [
            "0",
            "-1",
            "1",
            "9223372036854775807",
            "1e308",
            "-1e-308",
            "nan",
            "inf",
            "true",
            "\"\"",
            "\"\\u0000\"",
            "[]",
            "[[]]",
            "{}",
            "{ x = 1 }",
            "1979-05-27",
            "''",
            "\"http://#\"",
            "\"demo\"",
        ];
        for key in &all {
            for value in odd {
                let resolved = load(&[], &[&format!("{key}={value}")]).and_then(crate::config::Config::resolve);
                let Err(error) = resolved else { continue };
                let told = format!("{error:#}");
                let section = key.split('.').next().unwrap();
                assert!(told.contains(section), "{key}={value}: {told}");
            }
        }
    }

    #[test]
    fn every_shipped_configuration_is_valid() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
        let mut seen = 0;
        let folders =
            [".", "ablations", "aggregations", "algorithms", "baselines", "baselines/paper", "rules", "windows"];
        for folder in folders.map(|name| folder.join(name)) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.extension().is_some_and(|extension| extension == "toml") {
                    let resolved = load(&[&path], &[]).and_then(crate::config::Config::resolve);
                    assert!(resolved.is_ok(), "{}: {:#}", path.display(), resolved.unwrap_err());
                    seen += 1;
                }
            }
        }
        assert!(seen >= 36, "only {seen} configurations found");
    }
}

//! The names of settings: unknown ones are refused, and the one that is meant is suggested.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use serde_json::{Map, Value};

use super::Settings;

/// How alike two names are, at least, for one to be suggested in place of the other (Jaro–Winkler, 0 to 1).
const ALIKE: f64 = 0.75;

/// Refuses keys that no setting has, and names the one that is probably meant.
pub fn check(values: &Map<String, Value>) -> Result<()> {
    let Value::Object(known) = serde_json::to_value(Settings::default())? else {
        unreachable!("a struct is an object")
    };
    check_section(values, &known, "")?;
    values.iter().try_for_each(|(key, value)| check_finite(key, value))
}

/// Refuses numbers that JSON does not have. (TOML has no null.)
fn check_finite(key: &str, value: &Value) -> Result<()> {
    match value {
        Value::Null => bail!("`{key}` is not a finite number"),
        Value::Array(values) => values.iter().try_for_each(|value| check_finite(key, value)),
        Value::Object(values) => {
            values.iter().try_for_each(|(name, value)| check_finite(&format!("{key}.{name}"), value))
        }
        _ => Ok(()),
    }
}

fn check_section(values: &Map<String, Value>, known: &Map<String, Value>, section: &str) -> Result<()> {
    for (key, value) in values {
        let Some(default) = known.get(key) else {
            bail!("unknown setting `{section}{key}`{}", hint(key, known, section))
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

/// The setting that is most like `key`, by the last part of its name, so that `steps` finds `run.steps`; where none is, those
/// of the section.
fn hint(key: &str, known: &Map<String, Value>, section: &str) -> String {
    let likeness = |name: &String| {
        let last = name.rsplit('.').next().unwrap_or(name);
        if initials(last) == key { 1.0 } else { strsim::jaro_winkler(last, key) }
    };
    let nearest = names(known, section).into_iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    match nearest.filter(|name| likeness(name) >= ALIKE) {
        Some(name) => format!("; did you mean `{name}`?"),
        None => format!(
            "; there are {}",
            known.keys().map(|key| format!("`{section}{key}`")).collect::<Vec<_>>().join(", ")
        ),
    }
}

/// `learning_rate` → `lr`.
fn initials(name: &str) -> String {
    name.split('_').filter_map(|word| word.chars().next()).collect()
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

/// The settings in which two written configurations differ, as `section.key`.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn told(line: &str) -> String {
        check(&toml::from_str(line).unwrap()).unwrap_err().to_string()
    }

    #[test]
    fn an_unknown_key_is_told_which_one_is_meant() {
        for (line, meant) in [
            ("rollout.temprature = 1", "rollout.temperature"),
            ("steps = 1", "run.steps"),
            ("corpus.remote.patience = 7", "corpus.remote.patience_s"),
            ("update.lr = 1", "update.learning_rate"),
            ("update.lora.rank = 8", "update.lora.r"),
        ] {
            assert!(told(line).contains(&format!("did you mean `{meant}`?")), "{}", told(line));
        }
        assert!(check(&toml::from_str("rule.settings.anything = 1\nupdate.loss.delta = 2.0").unwrap()).is_ok());
    }

    #[test]
    fn where_nothing_is_alike_the_section_is_listed() {
        assert_eq!(
            told("checkpoint.zzz = 1"),
            "unknown setting `checkpoint.zzz`; there are `checkpoint.every`, `checkpoint.keep`"
        );
    }

    #[test]
    fn differences_are_named() {
        let (one, other) = ("[run]\nsteps = 1\nseed = 2", "[run]\nsteps = 3\nseed = 2\n[rule.settings]\nx = 1");
        assert_eq!(differences(one, other).unwrap(), ["rule", "run.steps"]);
    }
}

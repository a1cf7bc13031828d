//! The declarations of settings as data: their names, bounds and meanings.

use std::fmt;
use std::sync::LazyLock;

use anyhow::{Result, bail};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::Settings;
use crate::filter::FilterSettings;
use crate::reward::{Compatibility, Language, SentenceSplitter};

/// Jaro–Winkler similarity from which on a known name is suggested for an unknown one, 0 to 1.
const SIMILAR: f64 = 0.75;

/// Products of settings that are bounded together: the unit of the product, the settings, the
/// largest value.
const PRODUCTS: [(&str, &[&str], f64); 3] = [
    ("completions of a step", &["question.prompts_per_step", "rollout.num_generations"], 1e5),
    (
        "tokens of a step",
        &["question.prompts_per_step", "rollout.num_generations", "rollout.max_completion_length"],
        1e8,
    ),
    ("completions of a batch of the filter", &["filter.batch", "filter.num_generations"], 1e5),
];

/// A setting or a section, as it is declared.
#[derive(Debug, Clone, PartialEq)]
pub struct Declared {
    /// Name with its section: `update.learning_rate`.
    pub key: String,
    /// Meaning and unit, from the doc comment.
    pub description: String,
    /// Type and default of a setting; `None` for a section, whose settings follow.
    pub setting: Option<Setting>,
}

/// Type, default and bounds of a setting.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// Default value; `Null` if the setting is not set.
    pub default: Value,
    /// JSON types of its values, without `null`.
    pub types: Vec<String>,
    /// Smallest and largest number.
    pub bounds: Option<(f64, f64)>,
    /// True if a text or list must not be empty.
    pub not_empty: bool,
    /// Allowed values with their meanings; empty if there is no such list.
    pub choices: Vec<(String, String)>,
}

/// Error of a setting whose value is not allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` is {got}; it must be {expected}")]
pub struct InvalidSetting {
    /// Name of the setting with its section.
    pub key: String,
    /// Value that was given.
    pub got: String,
    /// Allowed values, in words.
    pub expected: String,
}

/// Returns the JSON schema of all settings.
#[must_use]
pub fn json_schema() -> Value {
    schema_of::<Settings>()
}

/// Returns every section and setting, in the order of declaration within a section.
#[must_use]
pub fn declared() -> &'static [Declared] {
    static DECLARED: LazyLock<Vec<Declared>> = LazyLock::new(declared_in::<Settings>);
    &DECLARED
}

fn schema_of<T: JsonSchema>() -> Value {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

fn declared_in<T: JsonSchema>() -> Vec<Declared> {
    let mut declarations = Vec::new();
    collect("", &schema_of::<T>(), &mut declarations);
    declarations
}

/// Collects the settings of a section, then the sections in it.
fn collect(section: &str, schema: &Value, into: &mut Vec<Declared>) {
    let Some(properties) = schema["properties"].as_object() else { return };
    let mut members: Vec<(&String, &Value)> = properties.iter().collect();
    members.sort_by_key(|(_, property)| is_section(property));
    for (name, property) in members {
        let key = if section.is_empty() { name.clone() } else { format!("{section}.{name}") };
        let description = property["description"].as_str().unwrap_or_default().to_owned();
        let setting =
            if is_section(property) { None } else { Some(Setting::from_schema(property)) };
        into.push(Declared { key: key.clone(), description, setting });
        collect(&key, property, into);
    }
}

fn is_section(property: &Value) -> bool {
    property.get("properties").is_some()
}

impl Setting {
    fn from_schema(property: &Value) -> Self {
        let bounds = property["minimum"].as_f64().zip(property["maximum"].as_f64());
        let not_empty =
            ["minLength", "minItems"].iter().any(|name| property[*name].as_u64() == Some(1));
        // An optional enumeration is one of two alternatives.
        let alternatives = property["anyOf"].as_array().map_or(&[][..], Vec::as_slice);
        let mut choices = Vec::new();
        for schema in std::iter::once(property).chain(alternatives) {
            for choice in schema["oneOf"].as_array().into_iter().flatten() {
                if let Some(name) = choice["const"].as_str() {
                    let meaning = choice["description"].as_str().unwrap_or_default();
                    choices.push((name.to_owned(), meaning.to_owned()));
                }
            }
        }
        Self {
            default: property["default"].clone(),
            types: json_types(property),
            bounds,
            not_empty,
            choices,
        }
    }
}

/// Returns the JSON types that a schema and its alternatives name, without `null`.
fn json_types(schema: &Value) -> Vec<String> {
    let mut types = Vec::new();
    match &schema["type"] {
        Value::String(name) => types.push(name.clone()),
        Value::Array(names) => {
            types.extend(names.iter().filter_map(Value::as_str).map(str::to_owned))
        }
        _ => {}
    }
    for alternative in schema["anyOf"].as_array().into_iter().flatten() {
        types.extend(json_types(alternative));
    }
    types.retain(|name| name != "null");
    types
}

impl fmt::Display for Setting {
    /// Writes the type and the bounds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((least, most)) = self.bounds {
            return write!(f, "{} to {}", number(least), number(most));
        }
        if !self.choices.is_empty() {
            let names: Vec<String> =
                self.choices.iter().map(|(name, _)| format!("`{name}`")).collect();
            return f.write_str(&names.join(", "));
        }
        let mut kinds: Vec<&str> = Vec::new();
        for name in &self.types {
            kinds.push(match name.as_str() {
                "string" => "text",
                "array" => "list",
                "object" => "table",
                "boolean" => "true, false",
                name => name,
            });
        }
        kinds.dedup();
        f.write_str(&kinds.join(" or "))
    }
}

/// Formats a number in its shorter form: 1000000 as 1e6, 0.001 as 0.001.
fn number(value: f64) -> String {
    if value != 0.0 && !(1e-3..1e6).contains(&value.abs()) {
        format!("{value:e}")
    } else {
        value.to_string()
    }
}

/// Returns the type and the bounds of a setting that is one number or one truth value; `None` for the
/// others, whose errors say more.
pub(crate) fn type_in_words(key: &str) -> Option<String> {
    let declared = declared().iter().find(|declared| declared.key == key)?;
    let setting = declared.setting.as_ref()?;
    let kind = match setting.types.as_slice() {
        [name] if name == "integer" => "a whole number",
        [name] if name == "number" => "a number",
        [name] if name == "boolean" => "true or false",
        _ => return None,
    };
    Some(match setting.bounds {
        Some((least, most)) => format!("{kind} from {} to {}", number(least), number(most)),
        None => kind.to_owned(),
    })
}

/// Returns every value of `settings` that is out of its declared bounds; `section` is the prefix of
/// their names.
#[must_use]
pub fn check<T: JsonSchema + Serialize>(section: &str, settings: &T) -> Vec<InvalidSetting> {
    let values = match toml::Value::try_from(settings) {
        Ok(values) => values,
        Err(error) => {
            let key = if section.is_empty() { "settings".to_owned() } else { section.to_owned() };
            return vec![InvalidSetting {
                key,
                got: error.to_string(),
                expected: "a TOML value".into(),
            }];
        }
    };
    let mut problems = Vec::new();
    for Declared { key, setting, .. } in declared_in::<T>() {
        let (Some(setting), Some(value)) = (setting, find(&values, &key)) else { continue };
        let key = if section.is_empty() { key } else { format!("{section}.{key}") };
        if let (Some((least, most)), Some(got)) = (setting.bounds, as_number(value)) {
            if !(least..=most).contains(&got) {
                let expected = format!("from {} to {}", number(least), number(most));
                problems.push(InvalidSetting { key, got: got.to_string(), expected });
            }
        } else if setting.not_empty && is_empty(value) {
            let expected = "left out, or name something".to_owned();
            problems.push(InvalidSetting { key, got: "empty".to_owned(), expected });
        }
    }
    problems
}

/// Returns everything that is out of bounds in all settings, combinations of several included.
#[must_use]
pub fn check_all(settings: &Settings) -> Vec<InvalidSetting> {
    let mut problems = check("", settings);
    let Ok(values) = toml::Value::try_from(settings) else { return problems };
    for (unit, keys, most) in PRODUCTS {
        let mut product = 1.0;
        for key in keys {
            product *= find(&values, key).and_then(as_number).unwrap_or(1.0);
        }
        if product > most {
            let got = format!("part of {}: {product} {unit}", keys.join(" × "));
            let expected = format!("such that there are at most {}", number(most));
            problems.push(InvalidSetting { key: keys[0].to_owned(), got, expected });
        }
    }
    problems.extend(language_problems(settings));
    problems.extend(filter_problem(&settings.filter));
    problems
}

/// Returns the problem of a filter that can select no question; `None` if it can select one.
fn filter_problem(filter: &FilterSettings) -> Option<InvalidSetting> {
    let most = filter.most_correct();
    if filter.min_correct <= most || filter.anchors > 0 {
        return None;
    }
    let origin = match filter.max_correct {
        Some(max) if max <= filter.num_generations => "filter.max_correct",
        Some(_) => "filter.num_generations",
        None => "one less than filter.num_generations",
    };
    Some(InvalidSetting {
        key: "filter.min_correct".to_owned(),
        got: filter.min_correct.to_string(),
        expected: format!("at most {most}, which is {origin}"),
    })
}

/// Returns the problems of a language with the paper's splitter and the published code, which are for
/// English alone.
fn language_problems(settings: &Settings) -> Vec<InvalidSetting> {
    let Settings { reward, check, .. } = settings;
    let mut problems = Vec::new();
    if reward.language == Language::English {
        return problems;
    }
    let mut add = |key: &str, got: &str, expected: &str| {
        let expected = format!("{expected}, with reward.language");
        problems.push(InvalidSetting { key: key.to_owned(), got: got.to_owned(), expected });
    };
    for (key, splitter) in [("reward", reward.sentences), ("check", check.sentences)] {
        if splitter == SentenceSplitter::Paper {
            add(&format!("{key}.sentences"), "paper", "prose");
        }
    }
    if reward.compatibility == Compatibility::Reference {
        add("reward.compatibility", "reference", "paper");
    }
    problems
}

fn find<'a>(values: &'a toml::Value, key: &str) -> Option<&'a toml::Value> {
    key.split('.').try_fold(values, |section, name| section.get(name))
}

fn as_number(value: &toml::Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64))
}

fn is_empty(value: &toml::Value) -> bool {
    value.as_str().is_some_and(str::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

/// Checks that all names are those of settings.
///
/// # Errors
/// Fails at the first unknown name, with the name that is probably meant, and at the first number
/// that is not finite.
pub fn check_names(values: &Map<String, Value>) -> Result<()> {
    for (key, value) in values {
        check_name(key, value)?;
        check_finite(key, value)?;
    }
    Ok(())
}

fn check_name(key: &str, value: &Value) -> Result<()> {
    let Some(declared) = declared().iter().find(|declared| declared.key == key) else {
        bail!("unknown setting `{key}`{}", hint(key));
    };
    if declared.setting.is_some() {
        return Ok(()); // a free table, such as a rule's own settings, is a setting, too
    }
    let Value::Object(values) = value else {
        bail!("`{key}` is a section; set one of {}", members(key))
    };
    for (name, member) in values {
        check_name(&format!("{key}.{name}"), member)?;
    }
    Ok(())
}

/// Fails at numbers that JSON does not have, which are null here: TOML has no null.
fn check_finite(key: &str, value: &Value) -> Result<()> {
    match value {
        Value::Null => bail!("`{key}` is not a finite number"),
        Value::Array(values) => values.iter().try_for_each(|item| check_finite(key, item)),
        Value::Object(values) => values
            .iter()
            .try_for_each(|(name, member)| check_finite(&format!("{key}.{name}"), member)),
        _ => Ok(()),
    }
}

/// Names the most similar setting of the section, by the last part of the name, so that `steps`
/// finds `run.steps`; or else the members of the section.
fn hint(key: &str) -> String {
    let (section, last) = key.rsplit_once('.').unwrap_or(("", key));
    let mut best = None;
    let mut best_similarity = SIMILAR;
    for known in declared().iter().filter(|known| known.key.starts_with(section)) {
        let name = known.key.rsplit('.').next().unwrap_or(&known.key);
        let similarity =
            if initials(name) == last { 1.0 } else { strsim::jaro_winkler(name, last) };
        if similarity > best_similarity {
            best = Some(known);
            best_similarity = similarity;
        }
    }
    match best {
        Some(known) => format!("; did you mean `{}`?", known.key),
        None => format!("; there are {}", members(section)),
    }
}

/// Returns the initials of the words of a name: `lr` of `learning_rate`.
fn initials(name: &str) -> String {
    name.split('_').filter_map(|word| word.chars().next()).collect()
}

/// Lists the settings and sections directly in a section.
fn members(section: &str) -> String {
    let mut members = Vec::new();
    for Declared { key, .. } in declared() {
        let parent = key.rsplit_once('.').map_or("", |(parent, _)| parent);
        if parent == section {
            members.push(format!("`{key}`"));
        }
    }
    members.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Layers;

    fn refusal(line: &str) -> String {
        check_names(&toml::from_str(line).unwrap()).unwrap_err().to_string()
    }

    #[test]
    fn unknown_setting_suggests_similar_name() {
        for (line, meant) in [
            ("rollout.temprature = 1", "rollout.temperature"),
            ("steps = 1", "run.steps"),
            ("corpus.remote.retry_timeout = 7", "corpus.remote.retry_timeout_s"),
            ("update.lr = 1", "update.learning_rate"),
            ("update.lora.rank = 8", "update.lora.r"),
        ] {
            let refusal = refusal(line);
            assert!(refusal.contains(&format!("did you mean `{meant}`?")), "{refusal}");
        }
        let free = "rule.settings.anything = 1\nupdate.loss.delta = 2.0\npolicy.chat.x = true";
        assert!(check_names(&toml::from_str(free).unwrap()).is_ok());
    }

    #[test]
    fn unknown_setting_lists_section_names() {
        let expected =
            "unknown setting `checkpoint.zzz`; there are `checkpoint.every`, `checkpoint.keep`";
        assert_eq!(refusal("checkpoint.zzz = 1"), expected);
        assert!(refusal("checkpoint = 3").contains("is a section; set one of `checkpoint.every`"));
    }

    #[test]
    fn every_setting_has_description_and_bounds() {
        assert_eq!(check_all(&Settings::default()), []);
        for Declared { key, description, setting } in declared() {
            assert!(!description.is_empty(), "{key} has no description");
            let Some(setting) = setting else { continue };
            if setting.types.iter().any(|name| name == "number" || name == "integer") {
                assert!(setting.bounds.is_some(), "{key} has no bounds");
            }
            assert!(!setting.to_string().is_empty(), "{key} has no type");
        }
        let schema = json_schema();
        let optional = &schema["properties"]["update"]["properties"]["loss"]["properties"]["delta"];
        assert_eq!(
            (optional["minimum"].as_f64(), optional["maximum"].as_f64()),
            (Some(1.0), Some(1e6))
        );
        assert!(declared().iter().filter(|declared| declared.setting.is_some()).count() > 130);
    }

    #[test]
    fn other_languages_need_prose_and_the_papers_rules() {
        let keys = |lines: &str| {
            let settings: Settings = toml::from_str(lines).unwrap();
            check_all(&settings).into_iter().map(|problem| problem.key).collect::<Vec<_>>()
        };
        assert_eq!(keys("reward.language = 'de'"), ["reward.sentences"]);
        assert!(keys("reward.language = 'de'\nreward.sentences = 'prose'").is_empty());
        let all = "reward.language = 'zh'\nreward.compatibility = 'reference'\n\
                   check.sentences = 'paper'";
        assert_eq!(keys(all), ["reward.sentences", "check.sentences", "reward.compatibility"]);
        assert!(keys("reward.language = 'en'\ncheck.sentences = 'paper'").is_empty());
    }

    #[test]
    fn filter_that_selects_nothing_is_refused() {
        let refused = |lines: &str| {
            let settings: Settings = toml::from_str(&format!("[filter]\n{lines}")).unwrap();
            let problems = check_all(&settings);
            problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        };
        let message = |got: usize, most: usize, origin: &str| {
            format!("`filter.min_correct` is {got}; it must be at most {most}, which is {origin}")
        };
        let less = "one less than filter.num_generations";
        assert_eq!(refused("num_generations = 1"), message(1, 0, less));
        assert_eq!(refused("min_correct = 20"), message(20, 15, less));
        let above = refused("min_correct = 20\nmax_correct = 20");
        assert_eq!(above, message(20, 16, "filter.num_generations"));
        assert_eq!(refused("max_correct = 0"), message(1, 0, "filter.max_correct"));
        for lines in ["num_generations = 2", "min_correct = 16\nmax_correct = 16"] {
            assert_eq!(refused(lines), "");
        }
        // The questions that are always answered correctly are anchors.
        assert_eq!(refused("num_generations = 1\nanchors = 5"), "");
    }

    #[test]
    fn out_of_range_settings_are_reported_together() {
        let mut absurd = Settings::default();
        absurd.rollout.num_generations = 1_000_000_000;
        absurd.update.lora.alpha = f64::NAN;
        absurd.reward.lambda_judge = f64::INFINITY;
        absurd.policy.model = Some(String::new());
        let mut named: Vec<String> =
            check_all(&absurd).into_iter().map(|problem| problem.key).collect();
        named.sort();
        let steps = "question.prompts_per_step";
        let expected = [
            "policy.model",
            steps,
            steps,
            "reward.lambda_judge",
            "rollout.num_generations",
            "update.lora.alpha",
        ];
        assert_eq!(named, expected);
    }

    #[test]
    fn setting_problem_is_named_with_section() {
        let sampling = crate::Sampling { top_p: 0.0, ..crate::Sampling::default() };
        let problems = check("rollout", &sampling);
        assert_eq!(problems[0].to_string(), "`rollout.top_p` is 0; it must be from 1e-6 to 1");
        assert_eq!(problems.len(), 1);
    }

    /// Every setting with every odd value is accepted or rejected, and an error names the section.
    #[test]
    fn odd_setting_values_are_accepted_or_rejected() {
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
        for Declared { key, .. } in declared() {
            for value in odd {
                let mut layers = Layers::default();
                let settings =
                    layers.assign(&format!("{key}={value}")).and_then(|()| layers.settings());
                let refusal = match settings {
                    Err(error) => format!("{error:#}"),
                    Ok(settings) => match check_all(&settings).first() {
                        Some(problem) => problem.to_string(),
                        None => continue,
                    },
                };
                let section = key.split('.').next().unwrap();
                assert!(refusal.contains(section), "{key}={value}: {refusal}");
            }
        }
    }
}

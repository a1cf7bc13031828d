//! From the sections `rule`, `judge` and `format` to loaded rules.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use corver_core::verdict::{Blend, Weighted};
use corver_core::{Counter, Graders, PartError, RuleSentence, Rules, Verdict};
use corver_rules::{Kind, Manifest, ResponseRule, Rule, Sandbox};
use corver_study::run_dir;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::config::{Config, GraderSection};
use crate::parts;

/// The setting `rule.plugin`: one rule, or a list of rules whose rewards are added. `FILE.wasm:0.3` gives a rule a weight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected FILE.wasm, FILE.wasm:WEIGHT, or a list of those")]
pub enum Plugins {
    One(String),
    Several(Vec<String>),
}

impl Plugins {
    /// Those of the command line.
    pub fn new(mut texts: Vec<String>) -> Self {
        if texts.len() == 1 { Self::One(texts.remove(0)) } else { Self::Several(texts) }
    }

    /// As they are written.
    pub fn texts_mut(&mut self) -> &mut [String] {
        match self {
            Self::One(text) => std::slice::from_mut(text),
            Self::Several(texts) => texts,
        }
    }

    /// The rules, each understood.
    pub fn parse(&self) -> Result<Vec<Plugin>> {
        let texts = match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::Several(texts) => texts,
        };
        if texts.is_empty() {
            bail!("`rule.plugin` is an empty list: name a rule, such as \"first.wasm\"");
        }
        texts.iter().map(|text| text.parse()).collect()
    }
}

/// A rule's file and its weight.
#[derive(Debug, Clone, PartialEq)]
pub struct Plugin {
    pub path: PathBuf,
    pub weight: f64,
}

impl Plugin {
    /// The same for any folder. One that is named without a folder and is not here is shipped, and stays a name.
    pub fn with_absolute_path(mut self) -> Result<Self> {
        let here = with_extension(&self.path).into_iter().find(|path| path.is_file());
        if here.is_some() || self.path.components().count() > 1 {
            let path = here.as_ref().unwrap_or(&self.path);
            self.path = std::path::absolute(path).with_context(|| format!("the path {self}"))?;
        }
        Ok(self)
    }
}

impl FromStr for Plugin {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (path, weight) = match text.rsplit_once(':').map(|(path, weight)| (path, weight, weight.parse::<f64>())) {
            Some((path, _, Ok(weight))) => (path, weight),
            Some((path, weight, Err(_))) if path.ends_with(".wasm") => {
                bail!("the weight of {path} is {weight:?}; it must be a number")
            }
            _ => (text, 1.0),
        };
        if !weight.is_finite() {
            bail!("the weight of {path} is {weight}; it must be a finite number");
        }
        Ok(Self { path: path.into(), weight })
    }
}

impl fmt::Display for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if self.weight == 1.0 { Ok(()) } else { write!(f, ":{}", self.weight) }
    }
}

/// Folders that a bare plugin name is looked up in, in this order.
pub fn plugin_folders() -> Vec<PathBuf> {
    vec![PathBuf::new(), PathBuf::from("plugins/dist"), parts::checkout().join("plugins/dist")]
}

/// The file of a plugin: as given, or, where it is a bare name, in one of the [`plugin_folders`].
pub fn find_plugin(plugin: &Path) -> Result<PathBuf> {
    let bare = plugin.components().count() == 1;
    let folders = if bare { plugin_folders() } else { vec![PathBuf::new()] };
    let found = |plugin: &PathBuf| folders.iter().map(|folder| folder.join(plugin)).find(|path| path.is_file());
    with_extension(plugin).iter().find_map(found).with_context(|| {
        let nearest = if plugin.is_dir() {
            wasm_files(plugin).pop_first()
        } else if bare {
            nearest(plugin, built()).and_then(|path| path.file_name().map(PathBuf::from))
        } else {
            nearest(plugin, plugin.parent().map(wasm_files).unwrap_or_default())
        };
        let hint = match nearest {
            Some(nearest) => format!("; did you mean {}?", nearest.display()),
            None if bare => {
                "; it was looked for here and in plugins/dist (`make plugins` builds the shipped rules)".to_owned()
            }
            None => String::new(),
        };
        format!("there is no plugin {}{hint}", plugin.display())
    })
}

/// A plugin as it is written, and with `.wasm` at its end.
fn with_extension(plugin: &Path) -> [PathBuf; 2] {
    [plugin.to_owned(), plugin.with_added_extension("wasm")]
}

/// Every `.wasm` file in the [`plugin_folders`], in order of path.
pub fn built() -> BTreeSet<PathBuf> {
    let files = plugin_folders().into_iter().flat_map(|folder| wasm_files(&folder));
    files.map(|path| path.canonicalize().unwrap_or(path)).collect()
}

fn wasm_files(folder: &Path) -> BTreeSet<PathBuf> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let paths = std::fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "wasm")).collect()
}

/// The file among these whose name is most like this plugin's, if any is.
fn nearest(plugin: &Path, files: BTreeSet<PathBuf>) -> Option<PathBuf> {
    let stem = |path: &Path| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let wanted = stem(plugin)?;
    let likeness = |path: &PathBuf| stem(path).map_or(0.0, |name| strsim::jaro_winkler(&name, &wanted));
    let like = files.into_iter().filter(|path| likeness(path) > 0.8);
    like.max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
}

/// What pays the sentences of a run: a rule, or several as one.
pub struct SentenceRules {
    rules: Box<dyn Rules>,
    /// `first`, or `first+min`.
    pub name: String,
    /// blake3 of the plugin files, in the same order.
    pub hash: String,
}

impl Rules for SentenceRules {
    fn judge(&mut self, sentences: &[RuleSentence], counter: &mut dyn Counter) -> Result<Vec<Verdict>, PartError> {
        self.rules.judge(sentences, counter)
    }
}

/// Loads the rules of a configuration into one sandbox, so that they share its engines; compiled rules are kept.
pub struct Loader<'a> {
    config: &'a Config,
    sandbox: Sandbox,
    cache: PathBuf,
}

impl<'a> Loader<'a> {
    pub fn new(config: &'a Config) -> Result<Self> {
        let sandbox = Sandbox::new(config.rule.limits.clone())?;
        Ok(Self { config, sandbox, cache: parts::cache_dir()?.join("rules") })
    }

    /// The sentence rules. The settings of one that is alone are `rule.settings`; of several, each finds its own in
    /// `rule.settings.NAME`.
    pub fn sentence_rules(&self) -> Result<SentenceRules> {
        let plugins = self.config.rule.plugin.parse()?;
        let mut loaded = match plugins.as_slice() {
            [plugin] => vec![self.alone(&find_plugin(&plugin.path)?)?],
            several => self.with_own_settings(several)?,
        };
        let joined = |part: fn(&Rule) -> &str| loaded.iter().map(part).collect::<Vec<_>>().join("+");
        let (name, hash) = (joined(Rule::name), joined(Rule::hash));
        let rules: Box<dyn Rules> = if let [Plugin { weight: 1.0, .. }] = plugins.as_slice() {
            Box::new(loaded.remove(0))
        } else {
            let weighted = |(rule, plugin): (Rule, &Plugin)| Weighted {
                name: rule.name().to_owned(),
                weight: plugin.weight,
                rule: Box::new(rule),
            };
            Box::new(Blend::new(loaded.into_iter().zip(&plugins).map(weighted).collect()))
        };
        Ok(SentenceRules { rules, name, hash })
    }

    /// The response rules; the paper's where none is named.
    pub fn graders(&self) -> Result<Graders> {
        let Graders { judge, format } = Graders::default();
        Ok(Graders {
            judge: self.grader("judge", &self.config.judge)?.unwrap_or(judge),
            format: self.grader("format", &self.config.format)?.unwrap_or(format),
        })
    }

    /// A plugin of either kind by its file, with `rule.settings`.
    pub fn any(&self, plugin: &Path) -> Result<AnyRule> {
        let path = find_plugin(plugin)?;
        Ok(match Kind::of(&path, &self.config.rule.limits)? {
            Kind::Sentence => AnyRule::Sentence(self.alone(&path)?),
            Kind::Response => AnyRule::Response(self.response(&path, "rule", &self.config.rule.settings)?),
        })
    }

    fn alone(&self, path: &Path) -> Result<Rule> {
        let settings = &self.config.rule.settings;
        let rule = self.sandbox.load(path, Some(&self.cache), &Value::Object(settings.clone()));
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if settings.contains_key(name.as_ref()) {
            return rule.with_context(|| {
                format!("a rule that is alone takes `rule.settings` itself, not `rule.settings.{name}`")
            });
        }
        Ok(rule?)
    }

    fn response(&self, path: &Path, what: &str, settings: &Map<String, Value>) -> Result<ResponseRule> {
        let rule = self.sandbox.load_response_rule(path, Some(&self.cache), &Value::Object(settings.clone()));
        rule.with_context(|| format!("loading the {what}"))
    }

    /// Each rule with the table of `rule.settings` that has its name. The name is known when the rule is loaded, so one with
    /// settings is loaded a second time, then from the cache.
    fn with_own_settings(&self, plugins: &[Plugin]) -> Result<Vec<Rule>> {
        let mut settings = self.config.rule.settings.clone();
        let mut rules: Vec<Rule> = Vec::new();
        for Plugin { path, .. } in plugins {
            let path = find_plugin(path)?;
            let load = |settings: &Value| self.sandbox.load(&path, Some(&self.cache), settings);
            let rule = load(&Value::Null)?;
            if rules.iter().any(|other| other.name() == rule.name()) {
                bail!("two of the rules are called {}: their channels could not be told apart", rule.name());
            }
            rules.push(match settings.remove(rule.name()) {
                Some(own) => load(&own)?,
                None => rule,
            });
        }
        if let Some(unknown) = settings.keys().next() {
            let names = rules.iter().map(Rule::name).collect::<Vec<_>>().join(" and ");
            bail!("`rule.settings.{unknown}`: with several rules each has a table of its own name, here {names}");
        }
        Ok(rules)
    }

    fn grader(&self, name: &str, section: &GraderSection) -> Result<Option<Box<dyn corver_core::ResponseRule>>> {
        if section.plugin.is_empty() {
            if section.settings.is_empty() {
                return Ok(None);
            }
            bail!(
                "`{name}.settings` are given, but no `{name}.plugin` that takes them: the built-in one has no settings"
            );
        }
        let path = find_plugin(Path::new(&section.plugin))?;
        Ok(Some(Box::new(self.response(&path, name, &section.settings)?)))
    }
}

/// What a run's manifest records of a response rule.
pub fn grader_fingerprint(section: &GraderSection) -> Result<String> {
    if section.plugin.is_empty() {
        return Ok("built in".to_owned());
    }
    Ok(run_dir::fingerprint(&find_plugin(Path::new(&section.plugin))?)?)
}

/// A plugin of either kind.
pub enum AnyRule {
    Sentence(Rule),
    Response(ResponseRule),
}

impl AnyRule {
    pub fn kind(&self) -> Kind {
        match self {
            Self::Sentence(_) => Kind::Sentence,
            Self::Response(_) => Kind::Response,
        }
    }

    pub fn manifest(&self) -> &Manifest {
        match self {
            Self::Sentence(rule) => rule.manifest(),
            Self::Response(rule) => rule.manifest(),
        }
    }

    pub fn hash(&self) -> &str {
        match self {
            Self::Sentence(rule) => rule.hash(),
            Self::Response(rule) => rule.hash(),
        }
    }

    pub fn imports(&self) -> &[String] {
        match self {
            Self::Sentence(rule) => rule.imports(),
            Self::Response(rule) => rule.imports(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_follows_the_last_colon() {
        let parse = |text: &str| text.parse::<Plugin>().map(|plugin| (plugin.path, plugin.weight));
        assert_eq!(parse("first.wasm").unwrap(), ("first.wasm".into(), 1.0));
        assert_eq!(parse("a/b.wasm:-0.3").unwrap(), ("a/b.wasm".into(), -0.3));
        assert_eq!(parse("c:/d.wasm").unwrap(), ("c:/d.wasm".into(), 1.0));
        assert!(parse("first.wasm:inf").unwrap_err().to_string().contains("finite"));
        assert_eq!("first.wasm:0.5".parse::<Plugin>().unwrap().to_string(), "first.wasm:0.5");
    }

    #[test]
    fn an_empty_list_names_no_rule() {
        assert!(Plugins::new(Vec::new()).parse().unwrap_err().to_string().contains("rule.plugin"));
    }
}

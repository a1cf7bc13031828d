//! Loaded rules: those that judge the sentences of a run, its judge and its format check.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use corver_core::verdict::{Blend, Weighted};
use corver_core::{Backends, BoxError, Capability, Completion, Graders, SentenceScorer, Verdict};
use corver_rules::{Compiler, Kind, Manifest, ResponseRule, Rule, Sandbox};
use corver_settings::Plugin;
use serde_json::{Map, Value};

use crate::config::{Grader, RulesConfig};
use crate::folders;
use crate::plugin;

/// What pays the sentences of a run: a rule, or several as one.
pub struct SentenceRules {
    rules: Box<dyn SentenceScorer>,
    /// `first`, or `first+min`.
    pub name: String,
    /// blake3 of the plugin files, in the same order.
    pub hash: String,
}

impl SentenceRules {
    fn new(mut loaded: Vec<(Rule, &Plugin)>) -> Self {
        let joined = |part: fn(&Rule) -> &str| {
            loaded.iter().map(|(rule, _)| part(rule)).collect::<Vec<_>>().join("+")
        };
        let (name, hash) = (joined(Rule::name), joined(Rule::hash));
        let rules: Box<dyn SentenceScorer> =
            if let [(_, Plugin { weight: 1.0, .. })] = loaded.as_slice() {
                Box::new(loaded.remove(0).0)
            } else {
                let weighted = |(rule, plugin): (Rule, &Plugin)| Weighted {
                    name: rule.name().to_owned(),
                    weight: plugin.weight,
                    rule: Box::new(rule),
                };
                Box::new(Blend::new(loaded.into_iter().map(weighted).collect()))
            };
        Self { rules, name, hash }
    }
}

impl SentenceScorer for SentenceRules {
    fn required_capabilities(&self) -> Vec<Capability> {
        self.rules.required_capabilities()
    }

    fn reads_triplets(&self) -> bool {
        self.rules.reads_triplets()
    }

    fn score(
        &mut self,
        completions: &[Completion<'_>],
        backends: &mut Backends<'_>,
    ) -> Result<Vec<Vec<Verdict>>, BoxError> {
        self.rules.score(completions, backends)
    }
}

/// Loads the rules of a configuration into one sandbox, so that they share its engines; compiled
/// rules are cached.
pub struct Loader<'a> {
    config: &'a RulesConfig,
    sandbox: Sandbox,
    cache: PathBuf,
}

impl<'a> Loader<'a> {
    /// A sandbox with the limits of the configuration.
    ///
    /// # Errors
    /// Where the system refuses what it needs.
    pub fn new(config: &'a RulesConfig) -> Result<Self> {
        let sandbox = Sandbox::new(config.limits.clone(), Self::compiler()?)?;
        Ok(Self { config, sandbox, cache: Self::cache()? })
    }

    /// `corver-host`, started anew for every rule that is not in the cache.
    ///
    /// # Errors
    /// Where this program's path is not known.
    pub fn compiler() -> Result<Compiler> {
        Ok(Compiler::Child { program: folders::program()?, arguments: vec!["compile-rule".into()] })
    }

    /// Where compiled rules are kept.
    pub fn cache() -> Result<PathBuf> {
        Ok(folders::cache()?.join("rules"))
    }

    /// The sentence rules, as one. The settings of a single one are `rule.settings`; of several,
    /// each has its own in `rule.settings.NAME`.
    pub fn sentence_rules(&self) -> Result<SentenceRules> {
        self.load().map(SentenceRules::new)
    }

    /// The same rules one by one.
    pub fn each_sentence_rule(&self) -> Result<Vec<SentenceRules>> {
        Ok(self.load()?.into_iter().map(|one| SentenceRules::new(vec![one])).collect())
    }

    fn load(&self) -> Result<Vec<(Rule, &'a Plugin)>> {
        let loaded = match self.config.plugins.as_slice() {
            [plugin] => vec![self.single(&plugin::find(&plugin.path)?)?],
            several => self.with_own_settings(several)?,
        };
        Ok(loaded.into_iter().zip(&self.config.plugins).collect())
    }

    /// The response rules; where none is named the built-in one, as `reward.compatibility` has it.
    pub fn graders(&self) -> Result<Graders> {
        let Graders { judge, format } = Graders::built_in(self.config.compatibility);
        let own = |what: &str, grader: &Option<Grader>, built_in| match grader {
            None => Ok(built_in),
            Some(Grader { plugin, settings }) => {
                let rule = self.response(&plugin::find(plugin)?, what, settings)?;
                Ok::<Box<dyn corver_core::ResponseRule>, anyhow::Error>(Box::new(rule))
            }
        };
        Ok(Graders {
            judge: own("judge", &self.config.judge, judge)?,
            format: own("format check", &self.config.format, format)?,
        })
    }

    /// A plugin of either kind by its file, with `rule.settings`.
    pub fn any(&self, plugin: &Path) -> Result<AnyRule> {
        let path = plugin::find(plugin)?;
        Ok(match Kind::of(&path, &self.config.limits)? {
            Kind::Sentence => AnyRule::Sentence(self.single(&path)?),
            Kind::Response => {
                AnyRule::Response(self.response(&path, "rule", &self.config.settings)?)
            }
        })
    }

    fn single(&self, path: &Path) -> Result<Rule> {
        let settings = &self.config.settings;
        let rule = self.sandbox.load(path, Some(&self.cache), &Value::Object(settings.clone()));
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if settings.contains_key(name.as_ref()) {
            return rule.with_context(|| {
                format!("a single rule takes `rule.settings`, not `rule.settings.{name}`")
            });
        }
        Ok(rule?)
    }

    fn response(
        &self,
        path: &Path,
        what: &str,
        settings: &Map<String, Value>,
    ) -> Result<ResponseRule> {
        let rule = self.sandbox.load_response_rule(
            path,
            Some(&self.cache),
            &Value::Object(settings.clone()),
        );
        rule.with_context(|| format!("loading the {what}"))
    }

    /// Each rule with the table of `rule.settings` that has its name. The name is known only once
    /// the rule is loaded, so a rule with settings is loaded a second time, then from the cache.
    fn with_own_settings(&self, plugins: &[Plugin]) -> Result<Vec<Rule>> {
        let mut settings = self.config.settings.clone();
        let mut rules: Vec<Rule> = Vec::new();
        for Plugin { path, .. } in plugins {
            let path = plugin::find(path)?;
            let load = |own: &Value| self.sandbox.load(&path, Some(&self.cache), own);
            let rule = load(&Value::Null)?;
            if rules.iter().any(|other| other.name() == rule.name()) {
                bail!(
                    "two of the rules are called {}; their channels would be indistinguishable",
                    rule.name()
                );
            }
            rules.push(match settings.remove(rule.name()) {
                Some(own) => load(&own)?,
                None => rule,
            });
        }
        if let Some(unknown) = settings.keys().next() {
            let names = rules.iter().map(Rule::name).collect::<Vec<_>>().join(" and ");
            bail!(
                "`rule.settings.{unknown}`: with several rules, each has a table under its own name, here {names}"
            );
        }
        Ok(rules)
    }
}

impl Grader {
    /// The name of its file.
    pub fn name(&self) -> String {
        self.plugin.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// A plugin of either kind.
pub enum AnyRule {
    /// It judges sentences.
    Sentence(Rule),
    /// It judges whole completions.
    Response(ResponseRule),
}

impl AnyRule {
    /// Which of the two.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Sentence(_) => Kind::Sentence,
            Self::Response(_) => Kind::Response,
        }
    }

    /// What it says of itself.
    pub fn manifest(&self) -> &Manifest {
        match self {
            Self::Sentence(rule) => rule.manifest(),
            Self::Response(rule) => rule.manifest(),
        }
    }

    /// blake3 of its file.
    pub fn hash(&self) -> &str {
        match self {
            Self::Sentence(rule) => rule.hash(),
            Self::Response(rule) => rule.hash(),
        }
    }

    /// The interfaces that it imports.
    pub fn imports(&self) -> &[String] {
        match self {
            Self::Sentence(rule) => rule.imports(),
            Self::Response(rule) => rule.imports(),
        }
    }
}

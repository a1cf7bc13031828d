//! Loads the sentence rules of a run, its answer judge and its format check.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use corver_core::verdict::{Blend, Weighted};
use corver_core::{
    Backends, BoxError, Capability, Completion, CreditKind, Graders, SentenceScorer,
    SentenceVerdict,
};
use corver_rules::{
    Compiler, Manifest, PluginFile, PluginKind, Provenance, ResponseRule, Rule, Sandbox,
};
use corver_settings::{PluginRef, WeightedPlugin};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::config::{Grader, RulesConfig};
use crate::folders;
use crate::plugin;

/// Identity and weight of a sentence rule.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoadedRule {
    /// Name of the rule.
    pub name: String,
    /// Version of the rule.
    pub version: String,
    /// BLAKE3 hash of the plugin file.
    pub blake3: String,
    /// Factor of its rewards; 0: they are recorded, and not added.
    pub weight: f64,
}

/// Sentence rules of a run, scored as one rule.
pub struct SentenceRules {
    rules: Box<dyn SentenceScorer>,
    /// Identity of each rule.
    pub loaded: Vec<LoadedRule>,
    /// Names of the rules, joined with `+`: `first`, or `first+min`. Rules of weight 0 are left out if
    /// there are others.
    pub name: String,
    /// BLAKE3 hashes of the plugin files in the same order, joined with `+`.
    pub hash: String,
}

impl SentenceRules {
    fn new(mut rules: Vec<(Rule, &WeightedPlugin)>) -> Result<Self> {
        let loaded: Vec<LoadedRule> = rules
            .iter()
            .map(|(rule, plugin)| LoadedRule {
                name: rule.name().to_owned(),
                version: rule.manifest().version.clone(),
                blake3: rule.hash().to_owned(),
                weight: plugin.weight,
            })
            .collect();
        let has_rewarding = rules.iter().any(|(_, plugin)| !plugin.is_watched());
        let named = rules.iter().filter(|(_, plugin)| !(has_rewarding && plugin.is_watched()));
        let names: Vec<&str> = named.map(|(rule, _)| rule.name()).collect();
        let name = names.join("+");
        let hashes: Vec<&str> = loaded.iter().map(|rule| rule.blake3.as_str()).collect();
        let hash = hashes.join("+");
        if let [(_, WeightedPlugin { weight: 1.0, .. })] = rules.as_slice() {
            return Ok(Self { rules: Box::new(rules.remove(0).0), loaded, name, hash });
        }
        let mut blend = Vec::with_capacity(rules.len());
        for (rule, plugin) in rules {
            ensure!(
                rule.credit() == CreditKind::AllTokens,
                "{} assigns rewards to single tokens or sets the signs of advantages, which cannot \
                 be weighted or added to other rules; use it alone with a weight of 1",
                rule.name()
            );
            let rule_name = rule.name().to_owned();
            blend.push(Weighted { name: rule_name, weight: plugin.weight, rule: Box::new(rule) });
        }
        Ok(Self { rules: Box::new(Blend::new(blend)), loaded, name, hash })
    }
}

impl SentenceScorer for SentenceRules {
    fn required_capabilities(&self) -> Vec<Capability> {
        self.rules.required_capabilities()
    }

    fn reads_triplets(&self) -> bool {
        self.rules.reads_triplets()
    }

    fn credit(&self) -> CreditKind {
        self.rules.credit()
    }

    fn score(
        &mut self,
        completions: &[Completion<'_>],
        backends: &mut Backends<'_>,
    ) -> Result<Vec<Vec<SentenceVerdict>>, BoxError> {
        self.rules.score(completions, backends)
    }
}

/// Loader of a configuration's rules. They share one sandbox and its engines; compiled rules are
/// cached.
pub struct Loader<'a> {
    config: &'a RulesConfig,
    sandbox: Sandbox,
    cache: PathBuf,
}

impl<'a> Loader<'a> {
    /// Creates a sandbox with the limits of the configuration.
    ///
    /// # Errors
    /// If the system denies the sandbox a resource.
    pub fn new(config: &'a RulesConfig) -> Result<Self> {
        let sandbox = Sandbox::new(config.limits.clone(), Self::compiler())?;
        Ok(Self { config, sandbox, cache: Self::cache()? })
    }

    /// Returns the compiler: a `corver-host` process for each rule that is not in the cache.
    #[must_use]
    pub fn compiler() -> Compiler {
        Compiler::Child { program: folders::host_program(), arguments: vec!["compile-rule".into()] }
    }

    /// Returns the folder in which compiled rules are cached.
    ///
    /// # Errors
    /// As [`folders::cache`].
    pub fn cache() -> Result<PathBuf> {
        Ok(folders::cache()?.join("rules"))
    }

    /// Loads the sentence rules as one. A single rule takes `rule.settings`; several take
    /// `rule.settings.NAME` each.
    ///
    /// # Errors
    /// If a rule is missing, invalid, or named twice, or settings belong to none.
    pub fn sentence_rules(&self) -> Result<SentenceRules> {
        SentenceRules::new(self.load()?)
    }

    /// Loads the sentence rules one by one, each with a weight of 1 and with the settings that
    /// [`Self::sentence_rules`] gives it.
    ///
    /// # Errors
    /// As [`Self::sentence_rules`].
    pub fn each_sentence_rule(&self) -> Result<Vec<SentenceRules>> {
        let mut rules = Vec::new();
        for (rule, plugin) in self.load()? {
            let alone = WeightedPlugin { weight: 1.0, ..plugin.clone() };
            rules.push(SentenceRules::new(vec![(rule, &alone)])?);
        }
        Ok(rules)
    }

    fn load(&self) -> Result<Vec<(Rule, &'a WeightedPlugin)>> {
        let loaded = match self.config.plugins.as_slice() {
            [plugin] => vec![self.single(&plugin::find(&plugin.plugin)?)?],
            several => self.with_own_settings(several)?,
        };
        Ok(loaded.into_iter().zip(&self.config.plugins).collect())
    }

    /// Loads the response rules. The built-in ones with the settings `reward.*` replace
    /// those that are not named.
    ///
    /// # Errors
    /// If a rule is missing or invalid.
    pub fn graders(&self) -> Result<Graders> {
        let mut graders = Graders::built_in(&self.config.reward);
        if let Some(Grader { plugin, settings }) = &self.config.judge {
            graders.judge = Box::new(self.response(&plugin::find(plugin)?, "judge", settings)?);
        }
        if let Some(Grader { plugin, settings }) = &self.config.format {
            graders.format =
                Box::new(self.response(&plugin::find(plugin)?, "format check", settings)?);
        }
        Ok(graders)
    }

    /// Loads a plugin of either kind, with `rule.settings`.
    ///
    /// # Errors
    /// If the plugin is missing or invalid.
    pub fn any(&self, plugin: &PluginRef) -> Result<AnyRule> {
        let file = plugin::find(plugin)?;
        Ok(match PluginKind::read(&file.path, &self.config.limits)? {
            PluginKind::Sentence => AnyRule::Sentence(self.single(&file)?),
            PluginKind::Response => {
                AnyRule::Response(self.response(&file, "rule", &self.config.settings)?)
            }
        })
    }

    fn single(&self, file: &PluginFile) -> Result<Rule> {
        let settings = &self.config.settings;
        let rule = self.sandbox.load(file, Some(&self.cache), &Value::Object(settings.clone()));
        let name = file.path.file_stem().unwrap_or_default().to_string_lossy();
        if settings.contains_key(name.as_ref()) {
            return rule.with_context(|| {
                format!("a single rule takes `rule.settings`, not `rule.settings.{name}`")
            });
        }
        Ok(rule?)
    }

    fn response(
        &self,
        file: &PluginFile,
        what: &str,
        settings: &Map<String, Value>,
    ) -> Result<ResponseRule> {
        let rule = self.sandbox.load_response_rule(
            file,
            Some(&self.cache),
            &Value::Object(settings.clone()),
        );
        rule.with_context(|| format!("loading the {what}"))
    }

    /// Loads each rule with the table of `rule.settings` that has its name.
    fn with_own_settings(&self, plugins: &[WeightedPlugin]) -> Result<Vec<Rule>> {
        let mut settings = self.config.settings.clone();
        let mut rules: Vec<Rule> = Vec::new();
        for WeightedPlugin { plugin, .. } in plugins {
            let file = plugin::find(plugin)?;
            let mut rule =
                self.sandbox.load(&file, Some(&self.cache), &Value::Null).with_context(|| {
                    let path = file.path.display();
                    format!("loading {path} with its default settings, to learn its name")
                })?;
            if rules.iter().any(|other| other.name() == rule.name()) {
                bail!(
                    "two of the rules are called {}; their channels would be indistinguishable",
                    rule.name()
                );
            }
            // The name is known only now: a rule with settings is loaded again, from the cache.
            if let Some(own_settings) = settings.remove(rule.name()) {
                rule = self.sandbox.load(&file, Some(&self.cache), &own_settings)?;
            }
            rules.push(rule);
        }
        if let Some(unknown) = settings.keys().next() {
            let names = rules.iter().map(Rule::name).collect::<Vec<_>>().join(" and ");
            bail!(
                "`rule.settings.{unknown}`: with several rules, each has a table under its own \
                 name, here {names}"
            );
        }
        Ok(rules)
    }
}

impl Grader {
    /// Returns the name of the plugin file, without its extension.
    pub fn name(&self) -> String {
        self.plugin.name()
    }
}

/// Plugin of either kind.
pub enum AnyRule {
    /// Rule for single sentences.
    Sentence(Rule),
    /// Rule for whole completions.
    Response(ResponseRule),
}

impl AnyRule {
    /// Returns the kind of the rule.
    pub fn kind(&self) -> PluginKind {
        match self {
            Self::Sentence(_) => PluginKind::Sentence,
            Self::Response(_) => PluginKind::Response,
        }
    }

    /// Returns the rule's description of itself.
    pub fn manifest(&self) -> &Manifest {
        match self {
            Self::Sentence(rule) => rule.manifest(),
            Self::Response(rule) => rule.manifest(),
        }
    }

    /// Returns the BLAKE3 hash of the plugin file.
    pub fn hash(&self) -> &str {
        match self {
            Self::Sentence(rule) => rule.hash(),
            Self::Response(rule) => rule.hash(),
        }
    }

    /// Returns the plugin's statements about its origin.
    pub fn provenance(&self) -> &Provenance {
        match self {
            Self::Sentence(rule) => rule.provenance(),
            Self::Response(rule) => rule.provenance(),
        }
    }

    /// Returns the interfaces of the contract that the plugin imports.
    pub fn imports(&self) -> &[String] {
        match self {
            Self::Sentence(rule) => rule.imports(),
            Self::Response(rule) => rule.imports(),
        }
    }
}

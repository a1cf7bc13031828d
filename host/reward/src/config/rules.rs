//! Configuration of the rules for sentences and for completions.

use anyhow::Result;
use corver_settings::{GraderSection, Limits, PluginRef, RewardSettings, Settings, WeightedPlugin};
use serde_json::{Map, Value};

use super::{Problems, Resolve, absolute};
use crate::plugin;

/// Rules, their settings and limits.
#[derive(Debug, Clone, Default)]
pub struct RulesConfig {
    /// Sentence rules; their weighted rewards are added.
    pub plugins: Vec<WeightedPlugin>,
    /// Settings of the sentence rules.
    pub settings: Map<String, Value>,
    /// Resource limits of every rule.
    pub limits: Limits,
    /// Answer judge. `None`: the paper's, which is built in.
    pub judge: Option<Grader>,
    /// Format check. `None`: the paper's, which is built in.
    pub format: Option<Grader>,
    /// Settings of the built-in judge and format check.
    pub reward: RewardSettings,
}

/// Configuration of a response rule.
#[derive(Debug, Clone)]
pub struct Grader {
    /// Response rule's file.
    pub plugin: PluginRef,
    /// Settings that the rule receives.
    pub settings: Map<String, Value>,
}

impl Resolve for RulesConfig {
    fn resolve(settings: &mut Settings, problems: &mut Problems) -> Option<Self> {
        let mut plugins = Vec::new();
        for text in &mut settings.rule.plugin {
            if let Some(plugin) = problems.record("rule.plugin", parse_weighted(text)) {
                *text = plugin.to_string();
                plugins.push(plugin);
            }
        }
        let is_complete = plugins.len() == settings.rule.plugin.len();
        if settings.rule.plugin.is_empty() {
            problems
                .add("rule.plugin", "not set; --plugin FILE.wasm names one, such as first.wasm");
        }
        let judge = grader("judge", &mut settings.judge, problems);
        let format = grader("format", &mut settings.format, problems);
        if settings.judge.plugin.is_some() && settings.reward.refusal.is_some() {
            let problem =
                "set, but only the built-in judge reads it, and judge.plugin names another";
            problems.add("reward.refusal", problem);
            return None;
        }
        if !is_complete || plugins.is_empty() {
            return None;
        }
        Some(Self {
            plugins,
            settings: settings.rule.settings.clone(),
            limits: settings.rule.limits.clone(),
            judge: judge?,
            format: format?,
            reward: settings.reward,
        })
    }
}

impl RulesConfig {
    /// Returns a configuration of a single rule of weight 1, with the built-in response rules.
    #[must_use]
    pub fn single(plugin: &PluginRef, settings: &Settings) -> Self {
        Self {
            plugins: vec![WeightedPlugin { plugin: plugin.clone(), weight: 1.0 }],
            settings: settings.rule.settings.clone(),
            limits: settings.rule.limits.clone(),
            judge: None,
            format: None,
            reward: settings.reward,
        }
    }
}

/// Parses `PLUGIN` or `PLUGIN:WEIGHT`, and checks that the plugin exists.
fn parse_weighted(text: &str) -> Result<WeightedPlugin> {
    let WeightedPlugin { plugin, weight } = text.parse()?;
    plugin::find(&plugin)?;
    Ok(WeightedPlugin { plugin: absolute_plugin(&plugin)?, weight })
}

/// Returns `Some(None)` if no rule is named, and `None` if the one that is named cannot be found.
fn grader(
    name: &str,
    section: &mut GraderSection,
    problems: &mut Problems,
) -> Option<Option<Grader>> {
    let key = format!("{name}.plugin");
    let Some(text) = &mut section.plugin else {
        if section.settings.is_empty() {
            return Some(None);
        }
        problems.add(
            &key,
            format!("not set, but there are `{name}.settings`: the built-in one takes none"),
        );
        return None;
    };
    let plugin = problems.record(&key, text.parse().and_then(|plugin| absolute_plugin(&plugin)))?;
    *text = plugin.to_string();
    problems.record(&key, plugin::find(&plugin))?;
    Some(Some(Grader { plugin, settings: section.settings.clone() }))
}

/// Returns the plugin with an absolute path; the name of a shipped one stays a name.
fn absolute_plugin(plugin: &PluginRef) -> Result<PluginRef> {
    let location = match plugin.local().and_then(plugin::local_path) {
        Some(path) => absolute(&path)?.display().to_string(),
        None => plugin.location.clone(),
    };
    Ok(PluginRef { location, blake3: plugin.blake3.clone() })
}

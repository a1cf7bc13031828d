//! `corver-host plugin check`: prints a rule's name and settings, and tests that it conforms to the
//! contract.

use anyhow::{Context, Result};
use corver_core::{Capability, CreditKind};
use corver_reward::config::{self, RulesConfig};
use corver_reward::parts::{AnyRule, Loader};
use corver_reward::plugin;
use corver_rules::{PluginKind, Provenance};
use serde_json::{Map, Value, json};

use crate::args::RuleArgs;
use crate::output;
use crate::settings;

pub fn run(args: &RuleArgs, json: bool) -> Result<()> {
    let (settings, ()) = config::resolve(settings::of_rule_alone(args)?)?;
    let config = RulesConfig::single(&args.plugin, &settings);
    let rule = Loader::new(&config)?.any(&args.plugin)?;
    let path = plugin::find(&args.plugin)?.path;
    let manifest = rule.manifest();
    let bytes =
        std::fs::metadata(&path).with_context(|| format!("looking at {}", path.display()))?.len();
    let schema: Value = serde_json::from_str(&manifest.settings_schema)
        .with_context(|| format!("the settings schema of {} is not JSON", manifest.name))?;
    let (conformance, words) =
        conform(&rule).with_context(|| format!("{} does not conform", path.display()))?;
    if json {
        return output::json(&json!({
            "name": manifest.name, "version": manifest.version, "kind": rule.kind(),
            "summary": manifest.summary, "path": path, "bytes": bytes, "blake3": rule.hash(),
            "provenance": rule.provenance(),
            "imports": rule.imports(), "requires": manifest.requires,
            "reads_triplets": manifest.reads_triplets, "credit": manifest.credit,
            "settings": schema, "conformance": conformance,
        }));
    }
    output::line(format_args!(
        "{} {}, a {}: {}",
        manifest.name,
        manifest.version,
        rule.kind(),
        manifest.summary
    ));
    output::line(format_args!("{}, {bytes} bytes, blake3 {}", path.display(), rule.hash()));
    output::line(format_args!("{}", stated(rule.provenance())));
    let imports =
        if rule.imports().is_empty() { "nothing".to_owned() } else { rule.imports().join(", ") };
    output::line(format_args!("imports {imports}"));
    if !manifest.requires.is_empty() {
        output::line(format_args!(
            "requires {}, which a run must grant",
            listed(&manifest.requires)
        ));
    }
    if rule.kind() == PluginKind::Sentence && !manifest.reads_triplets {
        output::line("reads no triplets: none are extracted for it");
    }
    match manifest.credit {
        CreditKind::AllTokens => {}
        CreditKind::TokenRewards => output::line("rewards single tokens"),
        CreditKind::AdvantageSign => output::line("sets the signs of advantages"),
    }
    output::line(format_args!("conforms: {words}"));
    show_settings(&schema, &config.settings);
    Ok(())
}

/// Returns the rule's statements about its origin, in words.
fn stated(provenance: &Provenance) -> String {
    let Provenance { authors, licenses, revision } = provenance;
    let statements = [("authors", authors), ("licence", licenses), ("revision", revision)];
    let known: Vec<String> = statements
        .iter()
        .filter_map(|(what, statement)| Some(format!("{what} {}", statement.as_ref()?)))
        .collect();
    if known.is_empty() {
        return "states no authors, licence or revision".to_owned();
    }
    format!("states: {}", known.join("; "))
}

fn listed(capabilities: &[Capability]) -> String {
    capabilities.iter().map(Capability::to_string).collect::<Vec<_>>().join(", ")
}

/// Runs the rule on unusual input, and returns the result as JSON and in words.
fn conform(rule: &AnyRule) -> Result<(Value, String)> {
    const STEADY: &str = "get the same rewards in a batch, alone, repeated and reordered";
    Ok(match rule {
        AnyRule::Sentence(rule) => {
            let conformance = rule.conform()?;
            let rewards = match (conformance.lowest, conformance.highest) {
                (Some(lowest), Some(highest)) => format!("rewards from {lowest} to {highest}"),
                _ => "no rewards".to_owned(),
            };
            let words = format!(
                "{} unusual sentences of {} completions {STEADY}: {rewards}, {} requests",
                conformance.sentences, conformance.completions, conformance.requests
            );
            (serde_json::to_value(conformance)?, words)
        }
        AnyRule::Response(rule) => {
            let conformance = rule.conform()?;
            let words = format!(
                "{} unusual completions {STEADY}: rewards from {} to {}, labels {}",
                conformance.completions,
                conformance.lowest,
                conformance.highest,
                conformance.labels.join(", ")
            );
            (serde_json::to_value(conformance)?, words)
        }
    })
}

/// Prints each setting as `name = value`, and below it its meaning. --json has the whole schema.
fn show_settings(schema: &Value, given: &Map<String, Value>) {
    let Some(properties) =
        schema["properties"].as_object().filter(|properties| !properties.is_empty())
    else {
        output::line("takes no settings");
        return;
    };
    output::line("takes these settings:");
    for (name, property) in properties {
        let default = &property["default"];
        match given.get(name).filter(|given| *given != default) {
            Some(given) => output::line(format_args!("  {name} = {given} (default {default})")),
            None => output::line(format_args!("  {name} = {default}")),
        }
        for line in property["description"].as_str().into_iter().flat_map(str::lines) {
            output::line(format_args!("      {line}"));
        }
    }
}

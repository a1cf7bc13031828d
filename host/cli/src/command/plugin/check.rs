//! `corver-host plugin check`: who is this rule, what does it take, and does it keep the contract?

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::args::RuleArgs;
use crate::{output, parts, rules};

pub fn run(args: &RuleArgs, json: bool) -> Result<()> {
    let config = parts::rule_configuration(args)?;
    let rule = rules::single(&config, Path::new(&args.plugin))?;
    let manifest = rule.manifest();
    let path = rules::find_plugin(Path::new(&args.plugin))?;
    let bytes = std::fs::metadata(&path).with_context(|| format!("looking at {}", path.display()))?.len();
    let schema: Value = serde_json::from_str(&manifest.settings_schema)
        .with_context(|| format!("the settings schema of {} is not JSON", manifest.name))?;
    let conformance = rule.conform().with_context(|| format!("{} does not conform", path.display()))?;
    if json {
        return output::json(&json!({
            "name": manifest.name, "version": manifest.version, "summary": manifest.summary, "path": path,
            "bytes": bytes, "blake3": rule.hash(), "imports": rule.imports(), "settings": schema,
            "conformance": conformance,
        }));
    }
    output::line(format_args!("{} {}: {}", manifest.name, manifest.version, manifest.summary));
    output::line(format_args!("{}, {bytes} bytes, blake3 {}", path.display(), rule.hash()));
    let imports = if rule.imports().is_empty() { "nothing".to_owned() } else { rule.imports().join(", ") };
    output::line(format_args!("imports {imports}"));
    let rewards = match (conformance.lowest, conformance.highest) {
        (Some(lowest), Some(highest)) => format!("rewards from {lowest} to {highest}"),
        _ => "no rewards".to_owned(),
    };
    output::line(format_args!(
        "conforms: {} odd sentences of {} completions earn the same together, alone, again and in another order: {rewards}, {} look-ups",
        conformance.sentences, conformance.completions, conformance.queries
    ));
    output::line("takes these settings:");
    output::line(serde_json::to_string_pretty(&schema)?);
    Ok(())
}

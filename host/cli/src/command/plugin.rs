//! `corver-host plugin check | list`.

use anyhow::Result;
use serde_json::{Value, json};

use crate::args::{PluginArgs, PluginCommand};
use crate::config::Config;
use crate::{output, parts};

pub fn run(args: &PluginArgs, json: bool) -> Result<()> {
    match &args.command {
        PluginCommand::Check { plugin } => {
            let mut config = Config::default();
            config.rule.plugin.clone_from(plugin);
            check(&config, json)
        }
        PluginCommand::List => list(json),
    }
}

fn check(config: &Config, json: bool) -> Result<()> {
    let rule = parts::rule(config)?;
    let manifest = rule.manifest();
    let schema: Value = serde_json::from_str(&manifest.settings_schema).unwrap_or(Value::Null);
    if json {
        return output::json(&json!({
            "name": manifest.name, "version": manifest.version, "summary": manifest.summary,
            "blake3": rule.hash(), "settings": schema,
        }));
    }
    output::line(format_args!("{} {}: {}", manifest.name, manifest.version, manifest.summary));
    output::line(format_args!("blake3 {}", rule.hash()));
    output::line("loads, imports nothing foreign, and takes these settings:");
    output::line(serde_json::to_string_pretty(&schema)?);
    Ok(())
}

fn list(json: bool) -> Result<()> {
    let mut seen = std::collections::BTreeSet::new();
    for folder in parts::plugin_folders() {
        let folder = if folder.as_os_str().is_empty() { ".".into() } else { folder };
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            if path.extension().is_some_and(|extension| extension == "wasm") {
                seen.insert(path.canonicalize().unwrap_or(path));
            }
        }
    }
    for path in seen {
        let mut config = Config::default();
        config.rule.plugin.clone_from(&path);
        let loaded = parts::rule(&config);
        match (json, loaded) {
            (true, Ok(rule)) => {
                output::json(&json!({"path": path, "name": rule.manifest().name, "summary": rule.manifest().summary}))?
            }
            (true, Err(error)) => output::json(&json!({"path": path, "error": format!("{error:#}")}))?,
            (false, Ok(rule)) => output::line(format_args!(
                "{:<12} {}  {}",
                rule.manifest().name,
                rule.manifest().summary,
                path.display()
            )),
            (false, Err(error)) => output::line(format_args!("{}: {error:#}", path.display())),
        }
    }
    Ok(())
}

//! `corver-host plugin list`: lists the rules that are built.

use anyhow::Result;
use corver_reward::config::RulesConfig;
use corver_reward::parts::Loader;
use corver_reward::plugin;
use corver_settings::PluginRef;
use serde_json::json;

use crate::output;

pub fn run(json: bool) -> Result<()> {
    let config = RulesConfig::default();
    let loader = Loader::new(&config)?;
    for path in plugin::installed() {
        match (json, loader.any(&PluginRef::file(&path))) {
            (true, Ok(rule)) => {
                let manifest = rule.manifest();
                output::json(&json!({
                    "path": path, "kind": rule.kind(), "name": manifest.name,
                    "version": manifest.version, "summary": manifest.summary,
                }))?;
            }
            (true, Err(error)) => {
                output::json(&json!({"path": path, "error": format!("{error:#}")}))?
            }
            (false, Ok(rule)) => {
                let file = path.file_name().unwrap_or_default().to_string_lossy();
                output::line(format_args!(
                    "{file:<20} {:<14} {}",
                    rule.kind(),
                    rule.manifest().summary
                ));
            }
            (false, Err(error)) => tracing::warn!("{error:#}"),
        }
    }
    Ok(())
}

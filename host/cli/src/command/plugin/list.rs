//! `corver-host plugin list`.

use std::collections::BTreeSet;

use anyhow::Result;
use serde_json::json;

use crate::config::Config;
use crate::{output, rules};

pub fn run(json: bool) -> Result<()> {
    let mut seen = BTreeSet::new();
    for folder in rules::plugin_folders() {
        let folder = if folder.as_os_str().is_empty() { ".".into() } else { folder };
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            if path.extension().is_some_and(|extension| extension == "wasm") {
                seen.insert(path.canonicalize().unwrap_or(path));
            }
        }
    }
    for path in seen {
        match (json, rules::single(&Config::default(), &path)) {
            (true, Ok(rule)) => {
                let manifest = rule.manifest();
                output::json(
                    &json!({"path": path, "name": manifest.name, "version": manifest.version, "summary": manifest.summary}),
                )?;
            }
            (true, Err(error)) => output::json(&json!({"path": path, "error": format!("{error:#}")}))?,
            (false, Ok(rule)) => {
                let file = path.file_name().unwrap_or_default().to_string_lossy();
                output::line(format_args!("{file:<20} {}", rule.manifest().summary));
            }
            (false, Err(error)) => output::line(format_args!("{}: {error:#}", path.display())),
        }
    }
    Ok(())
}

//! Going on with what a folder under `runs` holds.

use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use corver_runs::{RunDir, RunDirError, RunManifest, folder};
use corver_settings::Settings;
use corver_settings::load::differences;
use toml::Value;

use crate::args::SettingsArgs;

/// The entry of a manifest that stands for the configuration.
pub const CONFIGURATION: &str = "configuration";

/// The settings that the folder was begun with, unless other files are given.
pub fn take_settings(args: &mut SettingsArgs, out: Option<&Path>) {
    if args.config.is_empty() {
        args.config = out
            .map(|out| out.join(folder::CONFIG))
            .into_iter()
            .filter(|path| path.is_file())
            .collect();
    }
}

/// The settings that decide what comes out: all but those in `free`, each a setting or a whole
/// section.
pub fn decisive(settings: &Settings, free: &[&str]) -> Result<String> {
    fn without(settings: Value, at: &str, free: &[&str]) -> Value {
        let Value::Table(table) = settings else { return settings };
        let kept = table.into_iter().filter_map(|(name, value)| {
            let whole = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
            (!free.contains(&whole.as_str())).then(|| (name, without(value, &whole, free)))
        });
        Value::Table(kept.collect())
    }
    let settings = Value::try_from(settings).context("writing the resolved configuration")?;
    toml::to_string(&without(settings, "", free)).context("writing the resolved configuration")
}

/// Whether a setting is this one, or lies in this section.
fn is_of(name: &str, free: &str) -> bool {
    name.strip_prefix(free).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Opens the folder if it was begun with all that is in `manifest`. Where it was begun with other
/// settings, the error names them; those in `free` may differ.
pub fn open(path: &Path, manifest: &RunManifest, resolved: &str, free: &[&str]) -> Result<RunDir> {
    RunDir::resume(path, manifest).map_err(|error| {
        let is_configuration =
            matches!(&error, RunDirError::Changed { what, .. } if what == CONFIGURATION);
        let differences = || {
            let recorded = std::fs::read_to_string(path.join(folder::CONFIG)).ok()?;
            differences(&recorded, resolved).ok()
        };
        let mut different = is_configuration.then(differences).flatten().unwrap_or_default();
        different.retain(|name| !free.iter().any(|free| is_of(name, free)));
        if different.is_empty() {
            return error.into();
        }
        let different = different.join(", ");
        anyhow!(
            "this run began with other values of {different}; leave them out to resume with its own"
        )
    })
}

/// Starts in a new folder, or goes on in one that the same command has left unfinished: what was
/// computed there lies elsewhere, or is computed again.
pub fn create(path: &Path, manifest: &RunManifest, resolved: &str) -> Result<RunDir> {
    ensure!(
        !path.join(folder::SUMMARY).exists(),
        "{} is finished; choose another folder with --out",
        path.display()
    );
    if !path.join(folder::MANIFEST).exists() {
        return Ok(RunDir::create(path, resolved, manifest)?);
    }
    let run = RunDir::resume(path, manifest)?;
    run.reopen(resolved)?;
    Ok(run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisive_settings_exclude_free_keys() {
        let of = |change: fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            decisive(&settings, &["run.steps", "check"]).unwrap()
        };
        let default = of(|_| ());
        assert_eq!(of(|settings| settings.run.steps = 7), default);
        assert_eq!(of(|settings| settings.check.pair = 7), default);
        assert_ne!(of(|settings| settings.run.seed = 7), default);
        assert_ne!(of(|settings| settings.checkpoint.every = 7), default);
    }

    #[test]
    fn free_section_covers_its_settings() {
        assert!(is_of("check.pair", "check") && is_of("run.steps", "run.steps"));
        assert!(!is_of("checkpoint.every", "check") && !is_of("run", "run.steps"));
    }
}

//! Resuming a run from its folder.

use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use corver_runs::{RunDir, RunDirError, RunManifest, folder, text_fingerprint};
use corver_settings::Settings;
use corver_settings::load::differences;
use toml::Value;

use crate::args::SettingsArgs;

/// Manifest entry with the fingerprint of the configuration.
pub const CONFIGURATION: &str = "configuration";

/// Puts the configuration that the run saved before the files that the command line names.
pub fn load_saved_config(args: &mut SettingsArgs, out: Option<&Path>) {
    let saved = out.map(|out| out.join(folder::CONFIG)).filter(|path| path.is_file());
    args.config.splice(0..0, saved);
}

/// Returns a manifest with the version of this program.
pub fn manifest() -> RunManifest {
    let mut manifest = RunManifest::default();
    manifest.set("corver-host", env!("CARGO_PKG_VERSION"));
    manifest
}

/// Returns a manifest with the version of this program and the fingerprint of the settings. Those in
/// `free` may change when the run is resumed.
pub fn manifest_of(settings: &Settings, free: &[&str]) -> Result<RunManifest> {
    let mut manifest = manifest();
    manifest.set(CONFIGURATION, text_fingerprint(&decisive_settings(settings, free)?));
    Ok(manifest)
}

/// Returns the settings that decide a run's result, as TOML: all but those in `free`, each a setting
/// or a section.
fn decisive_settings(settings: &Settings, free: &[&str]) -> Result<String> {
    fn without(settings: Value, at: &str, free: &[&str]) -> Value {
        let Value::Table(table) = settings else { return settings };
        let mut decisive = toml::Table::new();
        for (name, value) in table {
            let key = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
            if !free.contains(&key.as_str()) {
                decisive.insert(name, without(value, &key, free));
            }
        }
        Value::Table(decisive)
    }
    let settings = Value::try_from(settings).context("writing the resolved configuration")?;
    toml::to_string(&without(settings, "", free)).context("writing the resolved configuration")
}

/// True if a setting is `free`, or in the section `free`.
fn is_of(name: &str, free: &str) -> bool {
    name.strip_prefix(free).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Opens the folder of a run to resume it. Settings in `free` may differ.
///
/// # Errors
/// Fails if the run's manifest is another one; if settings differ, the error names them.
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
            "this run began with other values of {different}; omit them to resume with the saved \
             ones"
        )
    })
}

/// Creates the folder, or reopens one that the same command has left unfinished.
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
    fn fingerprint_excludes_free_keys() {
        let of = |change: fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            decisive_settings(&settings, &["run.steps", "check"]).unwrap()
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

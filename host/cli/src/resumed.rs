//! Going on with what a folder under `runs` holds.

use std::path::Path;

use anyhow::{Result, anyhow, ensure};
use corver_study::run::{RunDir, RunDirError, RunManifest, folder};

use crate::args::SettingsArgs;

/// The entry of a manifest that stands for the configuration.
pub const CONFIGURATION: &str = "configuration";

/// The settings that the folder was begun with, unless other files are given.
pub fn take_settings(args: &mut SettingsArgs, out: Option<&Path>) {
    if args.config.is_empty() {
        args.config = out.map(|out| out.join(folder::CONFIG)).into_iter().filter(|path| path.is_file()).collect();
    }
}

/// Opens the folder if it was begun with all that is in `manifest`. Where it was begun with other settings, the error names them;
/// those in `free` may differ.
pub fn open(path: &Path, manifest: &RunManifest, resolved: &str, free: &[&str]) -> Result<RunDir> {
    RunDir::resume(path, manifest).map_err(|error| {
        let is_configuration = matches!(&error, RunDirError::Changed { what, .. } if what == CONFIGURATION);
        let differences = || {
            let recorded = std::fs::read_to_string(path.join(folder::CONFIG)).ok()?;
            corver_reward::settings::differences(&recorded, resolved).ok()
        };
        let mut different = is_configuration.then(differences).flatten().unwrap_or_default();
        different.retain(|name| !free.contains(&name.as_str()));
        if different.is_empty() {
            return error.into();
        }
        let different = different.join(", ");
        anyhow!("this run began with other values of {different}; leave them out to resume with its own")
    })
}

/// Starts in a new folder, or goes on in one that the same command has left unfinished: what was computed there lies elsewhere, or is
/// computed again.
pub fn create(path: &Path, manifest: &RunManifest, resolved: &str) -> Result<RunDir> {
    ensure!(!path.join(folder::SUMMARY).exists(), "{} is finished; choose another folder with --out", path.display());
    if !path.join(folder::MANIFEST).exists() {
        return Ok(RunDir::create(path, resolved, manifest)?);
    }
    let run = RunDir::resume(path, manifest)?;
    run.reopen(resolved)?;
    Ok(run)
}

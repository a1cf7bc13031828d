//! The settings of a command: its files and single settings, then its flags.

use anyhow::Result;
use corver_settings::{Layers, Settings};

use crate::args::{Flags, RuleArgs, SettingsArgs};

/// Returns the layers of a command's files, single settings and flags.
pub fn layers(args: &SettingsArgs, flags: &[&dyn Flags]) -> Result<Layers> {
    let mut layers = Layers::new(&args.config, &args.set)?;
    for group in flags {
        group.apply(&mut layers);
    }
    Ok(layers)
}

/// Returns the settings of a command.
pub fn load(args: &SettingsArgs, flags: &[&dyn Flags]) -> Result<Settings> {
    finish(&layers(args, flags)?)
}

/// Merges the layers, and says so if the built-in demo lies beneath.
pub fn finish(layers: &Layers) -> Result<Settings> {
    if layers.is_demo_by_default() {
        note_demo();
    }
    layers.settings()
}

/// Says that a command works on the built-in demo.
pub fn note_demo() {
    eprintln!("nothing of your own is named: this is the built-in demo");
}

/// Returns the layers of an arm: its own file comes last.
#[cfg(feature = "torch")]
pub fn layers_of_arm(
    args: &SettingsArgs,
    flags: &[&dyn Flags],
    arm: Option<&std::path::Path>,
) -> Result<Layers> {
    let mut layers = layers(args, flags)?;
    if let Some(file) = arm {
        layers.add_file(file)?;
    }
    Ok(layers)
}

/// Returns the settings for a command about one rule, which takes the place of those that they
/// name. If they name several, this one's own are the table with its file's name.
pub fn of_rule(args: &RuleArgs, flags: &[&dyn Flags]) -> Result<Settings> {
    let mut settings = load(&args.settings, flags)?;
    if settings.rule.plugin.len() > 1 {
        let name = args.plugin.file_stem().unwrap_or_default().to_string_lossy();
        let own = settings.rule.settings.remove(name.as_ref());
        settings.rule.settings = own.and_then(|own| own.as_object().cloned()).unwrap_or_default();
    }
    settings.rule.plugin = vec![args.plugin.display().to_string()];
    Ok(settings)
}

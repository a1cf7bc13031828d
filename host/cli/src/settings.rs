//! Settings of a command: configuration files, then single settings, then flags.

use anyhow::Result;
use corver_reward::config::RulesConfig;
use corver_reward::parts::Loader;
use corver_settings::{Layers, PluginRef, Settings};

use crate::args::{Flags, RuleArgs, SettingsArgs};
use crate::output;

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

/// Merges the layers, with a note if they use the built-in demo by default.
pub fn finish(layers: &Layers) -> Result<Settings> {
    if layers.is_demo_by_default() {
        note_demo();
    }
    layers.settings()
}

/// Prints a note that the command uses the built-in demo.
pub fn note_demo() {
    output::error_line("using the built-in demo: no model, corpus or questions are named");
}

/// Returns the layers of an arm; its settings file comes last.
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

/// Returns the settings of a command about a single rule, which replaces the configured ones. If
/// several are configured, the table with its name has its settings.
pub fn of_rule(args: &RuleArgs, flags: &[&dyn Flags]) -> Result<Settings> {
    with_rule(load(&args.settings, flags)?, args)
}

/// Returns the settings as [`of_rule`] does, for a command that uses no corpus or model.
pub fn of_rule_alone(args: &RuleArgs) -> Result<Settings> {
    with_rule(layers(&args.settings, &[])?.settings()?, args)
}

fn with_rule(mut settings: Settings, args: &RuleArgs) -> Result<Settings> {
    if settings.rule.plugin.len() > 1 {
        let name = rule_name(&args.plugin, &settings)?;
        let own = settings.rule.settings.remove(&name);
        settings.rule.settings = own.and_then(|own| own.as_object().cloned()).unwrap_or_default();
    }
    settings.rule.plugin = vec![args.plugin.to_string()];
    Ok(settings)
}

/// Returns the name that a rule gives itself; its file may have another.
fn rule_name(plugin: &PluginRef, settings: &Settings) -> Result<String> {
    let mut config = RulesConfig::single(plugin, settings);
    config.settings.clear();
    let rule = Loader::new(&config)?.any(plugin)?;
    Ok(rule.manifest().name.clone())
}

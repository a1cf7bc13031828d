//! The first line of the input is a `--set`, unless it is empty; what follows is a configuration file. It is resolved, or every
//! problem is told; what is resolved can be written, and means the same when it is read again, as `train --resume` does.
#![no_main]
#![allow(dead_code, reason = "parts of the corver-host binary, which uses more of them")]

#[path = "../../cli/src/args/mod.rs"]
mod args;
#[path = "../../cli/src/config.rs"]
mod config;
#[path = "../../cli/src/folders.rs"]
mod folders;
#[path = "../../cli/src/hub.rs"]
mod hub;
#[path = "../../cli/src/plugin.rs"]
mod plugin;
#[path = "../../cli/src/settings/mod.rs"]
mod settings;

use std::path::PathBuf;
use std::sync::LazyLock;

use args::{Arguments, Command};
use clap::Parser;
use config::Config;
use libfuzzer_sys::fuzz_target;
use settings::Settings;

static FOLDER: LazyLock<tempfile::TempDir> =
    LazyLock::new(|| tempfile::tempdir().expect("there is a folder for temporary files"));

fn resolve(file: &str, set: Option<&str>) -> anyhow::Result<Config> {
    let path: PathBuf = FOLDER.path().join("config.toml");
    std::fs::write(&path, file)?;
    let path = path.to_str().expect("a temporary folder has a plain name");
    let set = set.map(|set| format!("--set={set}"));
    let arguments = ["corver-host", "train", "--config", path].map(str::to_owned);
    let arguments = Arguments::try_parse_from(arguments.into_iter().chain(set))?;
    let Command::Train(arguments) = arguments.command else { unreachable!("it is train") };
    Config::resolve(Settings::of_train(&arguments)?)
}

fuzz_target!(|input: &str| {
    let (set, file) = input.split_once('\n').unwrap_or(("", input));
    let Ok(config) = resolve(file, Some(set).filter(|set| !set.is_empty())) else { return };
    assert!((1..=100_000).contains(&(config.prompts_per_step * config.rollout.num_generations)));
    assert!(config.update.learning_rate.is_finite() && config.update.lora.r > 0);
    let written = toml::to_string(&config.to_settings()).expect("settings can be written");
    let again = resolve(&written, None).unwrap_or_else(|error| panic!("{error:#}\n{written}"));
    assert_eq!(format!("{config:?}"), format!("{again:?}"), "{written}");
});

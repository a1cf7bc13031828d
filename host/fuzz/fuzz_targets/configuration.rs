//! The first line of the input is a `--set`, unless it is empty; what follows is a configuration file. It is resolved, or every
//! problem is told; what is resolved can be written, and means the same when it is read again, as `train --resume` does.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use corver_reward::{Config, Settings};
use libfuzzer_sys::fuzz_target;

static FOLDER: LazyLock<tempfile::TempDir> =
    LazyLock::new(|| tempfile::tempdir().expect("there is a folder for temporary files"));

fn resolve(file: &str, set: Option<&str>) -> anyhow::Result<Config> {
    let path: PathBuf = FOLDER.path().join("config.toml");
    std::fs::write(&path, file)?;
    let set: Vec<String> = set.map(str::to_owned).into_iter().collect();
    Config::resolve(Settings::load(&[path], &set)?)
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

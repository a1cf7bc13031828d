//! The first line of the input is a `--set`, unless it is empty; the rest is a configuration file.
//! It is resolved, or every problem is reported. Resolved settings can be written, and are equal
//! when they are read again, as `train --resume` does.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use corver_reward::config::{self, CorpusConfig, Resolve};
use corver_settings::{Layers, Settings};
use libfuzzer_sys::fuzz_target;

static FOLDER: LazyLock<tempfile::TempDir> =
    LazyLock::new(|| tempfile::tempdir().expect("there is a folder for temporary files"));

fn resolve(file: &str, set: Option<&str>) -> anyhow::Result<Settings> {
    let path: PathBuf = FOLDER.path().join("config.toml");
    std::fs::write(&path, file)?;
    let set: Vec<String> = set.map(str::to_owned).into_iter().collect();
    let settings = Layers::new(&[path], &set)?.settings()?;
    let (settings, _) = config::resolve_with(settings, |settings, problems| {
        let corpus = !settings.corpus.index.is_empty();
        if corpus { CorpusConfig::resolve(settings, problems).map(drop) } else { Some(()) }
    })?;
    Ok(settings)
}

fuzz_target!(|input: &str| {
    let (set, file) = input.split_once('\n').unwrap_or(("", input));
    let Ok(settings) = resolve(file, Some(set).filter(|set| !set.is_empty())) else { return };
    assert!(
        (1..=100_000)
            .contains(&(settings.question.prompts_per_step * settings.rollout.num_generations))
    );
    assert!(settings.update.learning_rate.is_finite() && settings.update.lora.r > 0);
    let written = toml::to_string(&settings).expect("settings can be written");
    let again = resolve(&written, None).unwrap_or_else(|error| panic!("{error:#}\n{written}"));
    assert_eq!(settings, again, "{written}");
});

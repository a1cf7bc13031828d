//! From a configuration to the parts of a step, each opened once.

mod demo;
mod questions;
mod rules;
mod verifiers;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use corver_core::Counter;
use corver_corpus::OpenOptions;
use corver_counts::{Memo, OpenSettings, Source};
use corver_extract::{Extractor, RuntimeLibrary};

use crate::config::{Config, DemoOr, Extraction, Place, UNSET};
use crate::folders;
use crate::hub;

pub use demo::{demo, demo_index};
pub use questions::{eval_questions, graded_questions, named_questions, read_files, train_questions, truth};
pub use rules::{AnyRule, Loader, SentenceRules};
pub use verifiers::{check_granted, fingerprints, verifiers};

/// The triplet model, and its folder.
pub fn extractor(config: &Config) -> Result<(PathBuf, Extractor)> {
    let folder = extractor_folder(named("extract.model", config.extractor.as_ref())?)?;
    let extractor = open_extractor(&folder, &config.extraction)?;
    Ok((folder, extractor))
}

/// The folder of the triplet model.
pub fn extractor_folder(place: &Place) -> Result<PathBuf> {
    match place {
        DemoOr::Demo => Ok(demo()?.extractor),
        DemoOr::Own(path) => {
            ensure!(path.exists(), "`extract.model`: {}", hub::missing(hub::Kind::Model, path));
            Ok(path.clone())
        }
    }
}

/// Opens the triplet model of a folder.
pub fn open_extractor(folder: &Path, extraction: &Extraction) -> Result<Extractor> {
    let Extraction { prompt, chat, settings, device } = extraction;
    let read = |path: &PathBuf| {
        std::fs::read_to_string(path).with_context(|| format!("cannot read the prompt {}", path.display()))
    };
    let options = corver_extract::Options {
        settings: settings.clone(),
        prompt: prompt.as_ref().map(read).transpose()?,
        chat: *chat,
        renderer: Some(renderer()?),
    };
    let runtime = runtime_library()?;
    Extractor::open(folder, options, *device, &runtime)
        .with_context(|| format!("opening the extractor {}", folder.display()))
}

/// ONNX Runtime: what `ORT_DYLIB_PATH` names, what was installed with this program, or what `make setup` put into the checkout.
///
/// # Errors
/// Where there is none.
pub fn runtime_library() -> Result<RuntimeLibrary> {
    let named = std::env::var_os("ORT_DYLIB_PATH").is_some();
    let packaged = folders::installation()?.join("lib/libonnxruntime.so");
    Ok(RuntimeLibrary::find(Some(packaged.as_path()).filter(|path| !named && path.is_file()))?)
}

/// Starts `corver-host` as the process that renders chat templates.
///
/// # Errors
/// Where this program's path is not known.
pub fn renderer() -> Result<Command> {
    let mut renderer = Command::new(folders::program()?);
    renderer.arg("render-prompts");
    Ok(renderer)
}

/// The sources of counts; the demo's index is built on first use.
pub fn sources(sources: &[DemoOr<Source>]) -> Result<Vec<Source>> {
    let source = |source: &DemoOr<Source>| match source {
        DemoOr::Demo => demo_index().map(Source::Folder),
        DemoOr::Own(source) => Ok(source.clone()),
    };
    sources.iter().map(source).collect()
}

/// The corpus, and where it comes from.
pub fn corpus(config: &Config) -> Result<(Vec<Source>, Box<dyn Counter>)> {
    let sources = sources(named("corpus.index", Some(&config.sources).filter(|sources| !sources.is_empty()))?)?;
    let settings = OpenSettings {
        options: config.counting,
        count_time: Some(config.count_time),
        index: OpenOptions { cache_bytes: config.cache_mib.saturating_mul(1 << 20), ..OpenOptions::default() },
        remote: config.remote.clone(),
        cache_dir: Some(folders::cache()?.join("counts")),
    };
    let counter = corver_counts::open(&sources, &settings)?;
    Ok((sources, Box::new(Memo::new(counter))))
}

/// The folder of the policy's model.
pub fn model(config: &Config) -> Result<PathBuf> {
    match named("policy.model", config.model.as_ref())? {
        DemoOr::Demo => Ok(demo()?.policy),
        DemoOr::Own(path) => {
            ensure!(path.exists(), "`policy.model`: {}", hub::missing(hub::Kind::Model, path));
            Ok(path.clone())
        }
    }
}

/// A setting that this command needs.
fn named<'a, T>(key: &str, value: Option<&'a T>) -> Result<&'a T> {
    value.with_context(|| format!("`{key}`: {UNSET}"))
}

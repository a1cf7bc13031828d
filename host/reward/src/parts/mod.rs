//! From a configuration to the parts of a step, each opened once.

mod backends;
mod demo;
mod rules;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use corver_core::Counter;
use corver_corpus::OpenOptions;
use corver_counts::{Memo, OpenSettings, Source};
use corver_inference::extract::{Extractor, RuntimeLibrary};

use crate::config::{CorpusConfig, DemoOr, ExtractorConfig, PolicyConfig};
use crate::folders;

pub use backends::{backends, check_granted, open_passages};
pub use demo::{demo, demo_index};
pub use rules::{AnyRule, Loader, SentenceRules};

/// Opens the triplet extractor, and returns its folder, too.
///
/// # Errors
/// If its prompt or its model cannot be used.
pub fn extractor(config: &ExtractorConfig) -> Result<(PathBuf, Extractor)> {
    let folder = match &config.model {
        DemoOr::Demo => demo()?.extractor,
        DemoOr::Own(path) => path.clone(),
    };
    let prompt = match &config.prompt {
        None => None,
        Some(path) => {
            let read = std::fs::read_to_string(path);
            Some(read.with_context(|| format!("cannot read the prompt {}", path.display()))?)
        }
    };
    let options = corver_inference::extract::Options {
        settings: config.settings.clone(),
        prompt,
        chat: config.chat,
        renderer: Some(renderer()?),
    };
    let runtime = runtime_library()?;
    let extractor = Extractor::open(&folder, options, config.device, &runtime)
        .with_context(|| format!("opening the extractor {}", folder.display()))?;
    Ok((folder, extractor))
}

/// ONNX Runtime: what `ORT_DYLIB_PATH` names, what was installed with this program, or what `make
/// setup` put into the checkout.
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

/// Opens the corpus, and returns its sources, too.
///
/// # Errors
/// If an index cannot be opened.
pub fn corpus(config: &CorpusConfig) -> Result<(Vec<Source>, Box<dyn Counter>)> {
    let sources = sources(&config.sources)?;
    let settings = OpenSettings {
        options: config.counting,
        count_time: Some(config.count_time),
        index: OpenOptions {
            cache_bytes: config.cache_mib.saturating_mul(1 << 20),
            ..OpenOptions::default()
        },
        remote: config.remote.clone(),
        cache_dir: Some(folders::cache()?.join("counts")),
    };
    let counter = corver_counts::open(&sources, &settings)?;
    Ok((sources, Box::new(Memo::new(counter))))
}

/// Returns the folder of the policy's model.
///
/// # Errors
/// If the demo cannot be unpacked.
pub fn model(config: &PolicyConfig) -> Result<PathBuf> {
    match &config.model {
        DemoOr::Demo => Ok(demo()?.policy),
        DemoOr::Own(path) => Ok(path.clone()),
    }
}

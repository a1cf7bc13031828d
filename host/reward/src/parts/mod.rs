//! Opens the parts of the reward from their configuration.

mod backends;
mod demo;
mod rules;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use corver_core::Counter;
use corver_corpus::OpenOptions;
use corver_counts::{CachedCounter, CorpusSource, OpenSettings};
use corver_inference::extract::{OnnxExtractor, RuntimeLibrary};

use crate::config::{CorpusConfig, DemoOr, ExtractorConfig, PolicyConfig};
use crate::folders;

pub use backends::{check_granted, open_backends, open_passages};
pub use demo::{demo_index, unpack_demo};
pub use rules::{AnyRule, Loader, SentenceRules};

/// Opens the triplet extractor, and returns its folder, too.
///
/// # Errors
/// If the prompt or the model cannot be used.
pub fn open_extractor(config: &ExtractorConfig) -> Result<(PathBuf, OnnxExtractor)> {
    let folder = match &config.model {
        DemoOr::Demo => unpack_demo()?.extractor,
        DemoOr::Own(path) => path.clone(),
    };
    let mut prompt = None;
    if let Some(path) = &config.prompt {
        let text = corver_files::read_settings_text(path)
            .with_context(|| format!("cannot read the prompt {}", path.display()))?;
        // Editors end a file with a line break, which few prompts mean.
        let text = text.strip_suffix('\n').unwrap_or(&text);
        prompt = Some(text.strip_suffix('\r').unwrap_or(text).to_owned());
    }
    let options = corver_inference::extract::ExtractOptions {
        settings: config.settings.clone(),
        prompt,
        chat: config.chat,
        grammar: config.grammar,
        renderer: Some(renderer()?),
    };
    let runtime = runtime_library()?;
    let extractor = OnnxExtractor::open(&folder, options, config.device, &runtime)
        .with_context(|| format!("opening the extractor {}", folder.display()))?;
    Ok((folder, extractor))
}

/// Finds ONNX Runtime: named by `ORT_DYLIB_PATH`, installed with this program, or put into the
/// checkout by `make setup`.
///
/// # Errors
/// If it is not found.
pub fn runtime_library() -> Result<RuntimeLibrary> {
    let is_named = std::env::var_os("ORT_DYLIB_PATH").is_some();
    let packaged = folders::installation()?.join("lib/libonnxruntime.so");
    let use_packaged = !is_named && packaged.is_file();
    Ok(RuntimeLibrary::find(use_packaged.then_some(packaged.as_path()))?)
}

/// Returns the command that renders chat templates in a child process.
///
/// # Errors
/// If the path of this program is not known.
pub fn renderer() -> Result<Command> {
    let mut renderer = Command::new(folders::host_program()?);
    renderer.arg("render-prompts");
    Ok(renderer)
}

/// Returns the sources of counts; the demo's index is built on first use.
///
/// # Errors
/// If the demo's index cannot be built.
pub fn resolve_sources(sources: &[DemoOr<CorpusSource>]) -> Result<Vec<CorpusSource>> {
    let mut resolved = Vec::with_capacity(sources.len());
    for source in sources {
        resolved.push(match source {
            DemoOr::Demo => CorpusSource::Folder(demo_index()?),
            DemoOr::Own(source) => source.clone(),
        });
    }
    Ok(resolved)
}

/// Opens the corpus, and returns its sources, too.
///
/// # Errors
/// If an index cannot be opened.
pub fn open_corpus(config: &CorpusConfig) -> Result<(Vec<CorpusSource>, Box<dyn Counter>)> {
    let sources = resolve_sources(&config.sources)?;
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
    Ok((sources, Box::new(CachedCounter::new(counter))))
}

/// Returns the folder of the policy's model.
///
/// # Errors
/// If the demo cannot be unpacked.
pub fn policy_folder(config: &PolicyConfig) -> Result<PathBuf> {
    match &config.model {
        DemoOr::Demo => Ok(unpack_demo()?.policy),
        DemoOr::Own(path) => Ok(path.clone()),
    }
}

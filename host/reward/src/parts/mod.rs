//! Opens the parts of the reward from their configuration.

mod backends;
mod demo;
mod extractor;
mod rules;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use corver_core::{CorpusInfo, Counter};
use corver_corpus::{CnfOptions, OpenOptions};
use corver_counts::pack::{Pack, PackedCounter};
use corver_counts::{CachedCounter, CorpusSource, OpenSettings, wire};
use corver_inference::extract::{OnnxExtractor, RuntimeLibrary};

use crate::config::{CorpusConfig, DemoOr, ExtractorConfig, ModelExtractorConfig, PolicyConfig};
use crate::folders;

pub use backends::{check_granted, open_backends, open_passages};
pub use demo::{demo_index, unpack_demo};
pub use extractor::OpenedExtractor;
pub use rules::{AnyRule, LoadedRule, Loader, SentenceRules};

/// Opens the source of triplets.
///
/// # Errors
/// If the prompt or the model cannot be used.
pub fn open_extractor(config: &ExtractorConfig) -> Result<OpenedExtractor> {
    match config {
        ExtractorConfig::Names(extractor) => Ok(OpenedExtractor::Names(*extractor)),
        ExtractorConfig::Model(model) => {
            let (folder, extractor) = open_model_extractor(model)?;
            Ok(OpenedExtractor::Model { folder, extractor })
        }
    }
}

/// Opens an extractor's model, and returns its folder, too.
///
/// # Errors
/// If the prompt or the model cannot be used.
pub fn open_model_extractor(config: &ModelExtractorConfig) -> Result<(PathBuf, OnnxExtractor)> {
    let folder = match &config.model {
        DemoOr::Demo => unpack_demo()?.extractor,
        DemoOr::Own(path) => path.clone(),
    };
    let mut prompt = None;
    if let Some(path) = &config.prompt {
        prompt = Some(read_prompt(path)?);
    }
    let options = corver_inference::extract::ExtractOptions {
        settings: config.settings.clone(),
        prompt,
        chat: config.chat,
        switches: config.chat_variables.clone(),
        grammar: config.grammar,
        renderer: Some(renderer()),
    };
    let runtime = runtime_library()?;
    let extractor = OnnxExtractor::open(&folder, options, config.device, &runtime)
        .with_context(|| format!("opening the extractor {}", folder.display()))?;
    Ok((folder, extractor))
}

/// Reads an extractor's prompt, without the line break with which editors end a file.
///
/// # Errors
/// If the file cannot be read.
pub fn read_prompt(path: &Path) -> Result<String> {
    let text = corver_files::read_settings_text(path)
        .with_context(|| format!("cannot read the prompt {}", path.display()))?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok(text.strip_suffix('\r').unwrap_or(text).to_owned())
}

/// Finds ONNX Runtime: named by `ORT_DYLIB_PATH`, installed with this program, or put into the
/// checkout by `make setup`.
///
/// # Errors
/// If it is not found.
pub fn runtime_library() -> Result<RuntimeLibrary> {
    let is_named = std::env::var_os("ORT_DYLIB_PATH").is_some_and(|path| !path.is_empty());
    let packaged = folders::installation()?.join("lib/libonnxruntime.so");
    let use_packaged = !is_named && packaged.is_file();
    Ok(RuntimeLibrary::find(use_packaged.then_some(packaged.as_path()))?)
}

/// Returns the command that renders chat templates in a child process.
#[must_use]
pub fn renderer() -> Command {
    let mut renderer = Command::new(folders::host_program());
    renderer.arg("render-prompts");
    renderer
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
    let Some(path) = &config.pack else {
        let counter = corver_counts::open(&sources, &settings)?;
        return Ok((sources, Box::new(CachedCounter::new(counter))));
    };
    let pack = Pack::open(path)?;
    check_pack(path, &pack, &sources, &config.counting)?;
    let mut next = None;
    if !sources.is_empty() {
        next = Some(corver_counts::open(&sources, &settings)?);
    }
    Ok((sources, Box::new(CachedCounter::new(Box::new(PackedCounter::new(pack, next))))))
}

/// Fails if a pack has counts of another index, or with another window or mode.
fn check_pack(
    path: &Path,
    pack: &Pack,
    sources: &[CorpusSource],
    counting: &CnfOptions,
) -> Result<()> {
    let header = pack.header();
    let is_known = sources.iter().all(|source| matches!(source, CorpusSource::Folder(_)));
    if is_known && !sources.is_empty() {
        let fingerprint = corver_counts::fingerprint(sources)?;
        ensure!(
            fingerprint == header.index,
            "the pack {} has the counts of another index than `corpus.index`",
            path.display()
        );
    }
    let CorpusInfo { window, mode, .. } = header.corpus;
    let set = (Some(counting.max_diff_tokens), Some(wire::count_mode(counting.mode)));
    ensure!(
        (window, mode) == set,
        "the pack {} was counted with `corpus.max_diff_tokens` {window:?} and `corpus.mode` {mode:?}; \
         this run sets {:?} and {:?}",
        path.display(),
        set.0,
        set.1
    );
    Ok(())
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

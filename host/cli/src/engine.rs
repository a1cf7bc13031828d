//! The sampler of a command: the policy, or the inference server that the settings name.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use corver_core::{Decoding, Question, Sampler, Sampling};
use corver_engine::{AdapterFolder, Engine, EngineApi, EngineSettings, ModelShape};
use corver_http::Token;
use corver_pretrained::{Dialogue, ModelConfig};
use corver_reward::config::{EngineConfig, PolicyConfig};
use corver_settings::{EngineKind, EngineSection, Settings};

use crate::policy;
use crate::tokenizer::load_tokenizer;

/// Opens the engine of the settings, if they name one; `model` is the folder of the model that it
/// serves.
pub fn open(settings: &Settings, policy: &PolicyConfig, model: &Path) -> Result<Option<Engine>> {
    let Some(EngineConfig { kind, url, model: name }) = &policy.engine else { return Ok(None) };
    let section = &settings.engine;
    let engine = EngineSettings {
        api: match kind {
            EngineKind::Vllm => EngineApi::Vllm,
            EngineKind::Sglang => EngineApi::Sglang,
        },
        url: url.clone(),
        model: name.clone(),
        token: Token::load(section.token_file.as_deref(), None)?,
        concurrency: section.concurrency,
        timeout: Duration::from_secs_f64(section.timeout_s),
        patience: Duration::from_secs_f64(section.retry_timeout_s),
    };
    let reading = format!("reading the model {}", model.display());
    let ModelConfig { vocab_size, max_positions, .. } =
        ModelConfig::read(&model.join("config.json")).with_context(|| reading.clone())?;
    let tokenizer = load_tokenizer(settings, model).context(reading)?;
    let dialogue = Dialogue::new(tokenizer).with_compatibility(settings.reward.compatibility);
    Ok(Some(Engine::open(&engine, dialogue, ModelShape { vocab_size, max_positions })?))
}

/// Returns the folder for adapters that the server reads: that of the settings, or else `default`.
pub fn adapter_folder(section: &EngineSection, default: &Path) -> Result<AdapterFolder> {
    let local = std::path::absolute(section.adapters.as_deref().unwrap_or(default))?;
    let on_server = section.adapters_on_server.clone().unwrap_or_else(|| local.clone());
    Ok(AdapterFolder { on_server, local })
}

/// Adapter and prompt of a sampler that is not trained.
pub struct Answering<'a> {
    /// Folder of the adapter. `None`: the raw model.
    pub adapter: Option<&'a Path>,
    pub system_prompt: &'a str,
    /// Folder that the adapter is published in for the engine, if no setting names one.
    pub scratch: &'a Path,
}

/// Opens the policy, or the engine that the settings name in its place.
///
/// # Errors
/// Fails if a prompt of the questions is too long.
pub fn open_sampler(
    settings: &Settings,
    policy: &PolicyConfig,
    model: &Path,
    Answering { adapter, system_prompt, scratch }: Answering<'_>,
    (questions, sampling): (&[Question], &Sampling),
    watch: impl FnMut(Decoding) -> ControlFlow<()> + 'static,
) -> Result<Box<dyn Sampler>> {
    if let Some(mut engine) = open(settings, policy, model)? {
        engine.set_system_prompt(system_prompt);
        engine.check_prompts(questions, sampling)?;
        engine.set_watch(watch);
        if let Some(adapter) = adapter {
            engine.claim_adapter_folder(adapter_folder(&settings.engine, scratch)?)?;
            engine.publish(|folder| Ok(corver_engine::copy_adapter(adapter, folder)?))?;
        }
        return Ok(Box::new(engine));
    }
    policy::open_sampler(settings, model, adapter, system_prompt, (questions, sampling), watch)
}

/// Returns the name of the device or engine that samples, for a manifest.
pub fn device(settings: &Settings, policy: &PolicyConfig) -> Result<String> {
    match policy.engine.as_ref().map(|engine| engine.kind) {
        None => policy::find_device(settings.run.device),
        Some(EngineKind::Vllm) => Ok("vllm".to_owned()),
        Some(EngineKind::Sglang) => Ok("sglang".to_owned()),
    }
}

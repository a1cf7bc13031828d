//! What draws completions: the policy, or the inference server that the settings name in its place.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use corver_core::{
    Decoding, Demonstration, Learner, PartError, Precision, Question, Rollout, Sampler, Sampling,
    Signal, TrainingBatch, UpdateReport,
};
use corver_engine::{AdapterPlace, Engine, EngineSettings, Kind, ModelShape};
use corver_http::Token;
use corver_pretrained::{Dialogue, ModelConfig};
use corver_reward::config::{EngineConfig, PolicyConfig};
use corver_settings::{EngineKind, EngineSection, Settings};

use crate::policy::{self, Policy};
use crate::tokenizer::load_tokenizer;

/// Finds the engine of the settings; `model` is the folder of the model that it serves.
pub fn open(settings: &Settings, policy: &PolicyConfig, model: &Path) -> Result<Option<Engine>> {
    let Some(EngineConfig { kind, url, model: name }) = &policy.engine else { return Ok(None) };
    let section = &settings.engine;
    let engine = EngineSettings {
        kind: match kind {
            EngineKind::Vllm => Kind::Vllm,
            EngineKind::Sglang => Kind::Sglang,
        },
        url: url.clone(),
        model: name.clone(),
        token: Token::load(section.token_file.as_deref(), None)?,
        concurrency: section.concurrency,
        timeout: Duration::from_secs_f64(section.timeout_s),
        patience: Duration::from_secs_f64(section.patience_s),
    };
    let of_model = || format!("reading the model {}", model.display());
    let ModelConfig { vocab_size, max_positions, .. } =
        ModelConfig::read(&model.join("config.json")).with_context(of_model)?;
    let dialogue = Dialogue::new(load_tokenizer(settings, model).with_context(of_model)?);
    let dialogue = dialogue.with_compatibility(settings.reward.compatibility);
    Ok(Some(Engine::open(&engine, dialogue, ModelShape { vocab_size, max_positions })?))
}

/// Where adapters are written for the server: `otherwise` where no setting names a folder.
fn adapter_place(section: &EngineSection, otherwise: &Path) -> Result<AdapterPlace> {
    let here = std::path::absolute(section.adapters.as_deref().unwrap_or(otherwise))?;
    let seen_as = section.adapters_as_seen_by_server.clone().unwrap_or_else(|| here.clone());
    Ok(AdapterPlace { seen_as, here })
}

/// How questions are answered without learning from it.
pub struct Answering<'a> {
    pub adapter: Option<&'a Path>,
    pub system_prompt: &'a str,
    /// Takes the adapter for the engine's server, where no setting names a folder.
    pub scratch: &'a Path,
}

/// The policy, or the engine that the settings name in its place; no prompt of these questions is
/// too long for it.
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
            engine.publish_into(adapter_place(&settings.engine, scratch)?)?;
            engine.publish(|folder| Ok(corver_engine::copy_adapter(adapter, folder)?))?;
        }
        return Ok(Box::new(engine));
    }
    let mut loaded = policy::load_policy(settings, model, adapter)?;
    loaded.set_system_prompt(system_prompt);
    loaded.check_prompts(questions, sampling)?;
    loaded.set_watch(watch);
    Ok(Box::new(loaded))
}

/// What draws completions, for a manifest.
pub fn device(settings: &Settings, policy: &PolicyConfig) -> Result<String> {
    match policy.engine.as_ref().map(|engine| engine.kind) {
        None => policy::find_device(settings.run.device),
        Some(EngineKind::Vllm) => Ok("vllm".to_owned()),
        Some(EngineKind::Sglang) => Ok("sglang".to_owned()),
    }
}

/// A policy that learns here, and whose completions an engine draws.
pub struct EnginePolicy {
    engine: Engine,
    policy: Policy,
    precision: Precision,
    /// The engine has not been given the policy's newest weights.
    is_behind: bool,
}

impl EnginePolicy {
    /// `run` is the folder of the run.
    pub fn new(
        mut engine: Engine,
        policy: Policy,
        settings: &Settings,
        run: &Path,
    ) -> Result<Self> {
        engine.publish_into(adapter_place(&settings.engine, &run.join("adapters"))?)?;
        Ok(Self { engine, policy, precision: settings.engine.adapter_precision, is_behind: true })
    }

    /// See [`Engine::set_watch`].
    pub fn set_watch(&mut self, watch: impl FnMut(Decoding) -> ControlFlow<()> + 'static) {
        self.engine.set_watch(watch);
    }
}

impl Sampler for EnginePolicy {
    /// Samples with the policy's newest weights.
    fn sample(
        &mut self,
        questions: &[Question],
        sampling: &Sampling,
        seed: u64,
        on_finished: &mut dyn FnMut(usize, &Rollout),
    ) -> Result<Vec<Rollout>, PartError> {
        let Self { engine, policy, precision, is_behind } = self;
        if *is_behind {
            engine.publish(|folder| Ok(policy.save_adapter(folder, *precision)?))?;
            *is_behind = false;
        }
        engine.sample(questions, sampling, seed, on_finished)
    }
}

impl Learner for EnginePolicy {
    fn set_system_prompt(&mut self, prompt: &str) {
        self.engine.set_system_prompt(prompt);
        self.policy.set_system_prompt(prompt);
    }

    fn prepare(&mut self, batch: &TrainingBatch<'_>) -> Result<Option<Vec<Vec<f64>>>, PartError> {
        Learner::prepare(&mut self.policy, batch)
    }

    fn update(
        &mut self,
        batch: &TrainingBatch<'_>,
        signal: &Signal,
    ) -> Result<UpdateReport, PartError> {
        self.is_behind = true;
        self.policy.update(batch, signal)
    }

    fn imitate(&mut self, demonstrations: &[Demonstration]) -> Result<UpdateReport, PartError> {
        self.is_behind = true;
        self.policy.imitate(demonstrations)
    }

    fn save(&mut self, folder: &Path, keep: usize) -> Result<(), PartError> {
        self.policy.save(folder, keep)
    }
}

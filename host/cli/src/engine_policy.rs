//! A policy that is trained in this process and sampled by an inference server.

use std::ops::ControlFlow;
use std::path::Path;

use anyhow::Result;
use corver_core::{
    BoxError, Decoding, Demonstration, Learner, Question, Rollout, Sampler, Sampling, Signal,
    TrainingBatch, UpdateReport,
};
use corver_engine::Engine;
use corver_settings::{AdapterPrecision, Settings};

use crate::engine::adapter_folder;
use crate::policy::Policy;

/// A policy that is trained here and sampled by an engine.
pub struct EnginePolicy {
    engine: Engine,
    policy: Policy,
    precision: AdapterPrecision,
    /// True if the engine does not have the policy's latest weights.
    is_behind: bool,
}

impl EnginePolicy {
    /// Couples an engine and a policy; adapters are published in the folder of the `run` unless a
    /// setting names another.
    pub fn new(
        mut engine: Engine,
        policy: Policy,
        settings: &Settings,
        run: &Path,
    ) -> Result<Self> {
        engine.claim_adapter_folder(adapter_folder(&settings.engine, &run.join("adapters"))?)?;
        Ok(Self { engine, policy, precision: settings.engine.adapter_precision, is_behind: true })
    }

    /// Sets the callback that sees decoding progress and may stop it ([`Engine::set_watch`]).
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
    ) -> Result<Vec<Rollout>, BoxError> {
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

    fn prepare(&mut self, batch: &TrainingBatch<'_>) -> Result<Option<Vec<Vec<f64>>>, BoxError> {
        Learner::prepare(&mut self.policy, batch)
    }

    fn update(
        &mut self,
        batch: &TrainingBatch<'_>,
        signal: &Signal,
    ) -> Result<UpdateReport, BoxError> {
        self.is_behind = true;
        self.policy.update(batch, signal)
    }

    fn imitate(&mut self, demonstrations: &[Demonstration]) -> Result<UpdateReport, BoxError> {
        self.is_behind = true;
        self.policy.imitate(demonstrations)
    }

    fn save(&mut self, folder: &Path, keep: usize) -> Result<(), BoxError> {
        self.policy.save(folder, keep)
    }
}

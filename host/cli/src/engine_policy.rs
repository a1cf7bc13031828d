//! A policy that learns in this process, with an inference server that samples for it.

use std::ops::ControlFlow;
use std::path::Path;

use anyhow::Result;
use corver_core::{
    BoxError, Decoding, Demonstration, Learner, Precision, Question, Rollout, Sampler, Sampling,
    Signal, TrainingBatch, UpdateReport,
};
use corver_engine::Engine;
use corver_settings::Settings;

use crate::engine::adapter_place;
use crate::policy::Policy;

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

//! What stands in for the policy in a build without libtorch: no value of it exists.

use std::ops::ControlFlow;
use std::path::Path;

use anyhow::{Result, bail};
use corver_core::{
    Decoding, Demonstration, Device, Learner, PartError, Precision, Question, Rollout, Sampler,
    Sampling, Signal, TrainingBatch, UpdateReport,
};
use corver_reward::config::PolicyConfig;
use corver_settings::Settings;

const NO_LIBTORCH: &str = "this corver-host was built without libtorch and has no policy; build it with the feature `torch`";

pub enum Policy {}

pub fn find_device(_: Device) -> Result<String> {
    bail!(NO_LIBTORCH)
}

/// No plan of memory exists either.
#[derive(serde::Serialize)]
pub enum MemoryPlan {}

impl std::fmt::Display for MemoryPlan {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {}
    }
}

pub fn plan_memory(_: &mut Settings, _: &PolicyConfig, _: &Path) -> Result<Option<MemoryPlan>> {
    Ok(None)
}

pub fn choose_threads(_: &mut Settings) -> Result<()> {
    Ok(())
}

pub fn load_policy(_: &Settings, _: &Path, _: Option<&Path>) -> Result<Policy> {
    bail!(NO_LIBTORCH)
}

pub fn load_learner(_: &Settings, _: &PolicyConfig, _: &Path) -> Result<Policy> {
    bail!(NO_LIBTORCH)
}

pub fn merge(_: &Settings, _: &Path, _: &Path, _: &Path) -> Result<()> {
    bail!(NO_LIBTORCH)
}

pub fn resume(policy: &mut Policy, _: &Path) -> Result<usize> {
    match *policy {}
}

impl Policy {
    pub fn set_watch(&mut self, _: impl FnMut(Decoding) -> ControlFlow<()> + 'static) {
        match *self {}
    }

    pub fn keep_failures(&mut self, _: &Path) {
        match *self {}
    }

    pub fn check_prompts(&self, _: &[Question], _: &Sampling) -> Result<()> {
        match *self {}
    }

    pub fn lengths(&self, _: &[Demonstration]) -> Result<Vec<usize>> {
        match *self {}
    }

    pub fn save_adapter(&self, _: &Path, _: Precision) -> Result<()> {
        match *self {}
    }
}

impl Sampler for Policy {
    fn sample(
        &mut self,
        _: &[Question],
        _: &Sampling,
        _: u64,
        _: &mut dyn FnMut(usize, &Rollout),
    ) -> Result<Vec<Rollout>, PartError> {
        match *self {}
    }
}

impl Learner for Policy {
    fn set_system_prompt(&mut self, _: &str) {
        match *self {}
    }

    fn update(&mut self, _: &TrainingBatch<'_>, _: &Signal) -> Result<UpdateReport, PartError> {
        match *self {}
    }

    fn imitate(&mut self, _: &[Demonstration]) -> Result<UpdateReport, PartError> {
        match *self {}
    }

    fn save(&mut self, _: &Path, _: usize) -> Result<(), PartError> {
        match *self {}
    }
}

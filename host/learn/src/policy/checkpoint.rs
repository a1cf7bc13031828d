//! Checkpoints of a training run: the adapter in PEFT's layout, the optimiser's state, and the
//! step.
//!
//! ```text
//! step-000050/adapter_model.safetensors, adapter_config.json   usable by itself
//! step-000050/optimizer.safetensors                            AdamW's moments
//! step-000050/critic.safetensors                               PPO's critic and its moments
//! step-000050/state.json                                       steps done, settings
//! step-000050/checksums.b3                                     of all files; for `b3sum --check`
//! ```
//!
//! Random numbers need no state: the run's seed and the step name every draw. A run that resumes
//! therefore continues as if it had not stopped, bit for bit on the CPU.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use corver_core::LearnSettings;
use corver_pretrained::PretrainedError;
use serde::{Deserialize, Serialize};
use tch::Tensor;

use crate::critic::{self, Critic};
use crate::error::Result;
use crate::files;
use crate::lora::AdapterCheckpoint;
use crate::optimizer::AdamW;
use crate::policy::Policy;

const FORMAT: u32 = 1;
const PREFIX: &str = "step-";
const CRITIC: &str = "critic.safetensors";

/// Content of state.json.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckpointState {
    format: u32,
    /// Optimiser steps so far.
    steps: usize,
    settings: LearnSettings,
}

impl Policy {
    /// Writes a checkpoint into `root`, which is created if needed, and deletes all but the newest
    /// `keep`, and those that killed processes left unfinished. Returns the new folder, which appears
    /// only when it is complete.
    ///
    /// # Errors
    /// Fails if a file cannot be written or deleted.
    pub fn save_checkpoint(&self, root: &Path, keep: usize) -> Result<PathBuf> {
        corver_files::create_folder(root).map_err(PretrainedError::io("create", root))?;
        let folder = root.join(format!("{PREFIX}{:06}", self.steps()));
        let new = files::create_folder(&folder)?;
        self.model.save_adapter(new.path())?;
        let names: Vec<String> =
            self.model.lora_parameters().into_iter().map(|(name, _)| name).collect();
        let steps = self.optimizer.steps();
        files::write_tensors(
            &new.path().join("optimizer.safetensors"),
            &moments(&self.optimizer, &names),
        )?;
        if let Some(critic) = &self.critic {
            let mut tensors = Vec::new();
            for (name, tensor) in critic::NAMES.into_iter().zip(critic.parameters()) {
                tensors.push((name.to_owned(), tensor.shallow_clone()));
            }
            tensors.extend(moments(critic.optimizer(), &critic::NAMES));
            files::write_tensors(&new.path().join(CRITIC), &tensors)?;
        }
        let state = CheckpointState { format: FORMAT, steps, settings: self.settings };
        let json = serde_json::to_string_pretty(&state).expect("numbers and names serialise");
        files::write(&new.path().join(files::CHECKPOINT_STATE), json.as_bytes())?;
        files::write_checksums(new.path())?;
        files::finish_folder(new, &folder)?;
        let mut superseded = checkpoints(root)?;
        superseded.truncate(superseded.len().saturating_sub(keep.max(1)));
        superseded.extend(unfinished_checkpoints(root)?);
        for old in superseded {
            std::fs::remove_dir_all(&old).map_err(PretrainedError::io("delete", &old))?;
        }
        Ok(folder)
    }

    /// Restores the adapter, the optimiser's state and the step of a checkpoint.
    ///
    /// # Errors
    /// Fails if a file is damaged, cannot be read or does not fit, or the settings differ from the
    /// checkpoint's (the length of the run may differ). The policy is then unchanged.
    pub fn resume(&mut self, checkpoint: &Path) -> Result<()> {
        files::verify_checksums(checkpoint)?;
        let path = checkpoint.join(files::CHECKPOINT_STATE);
        let text = std::fs::read_to_string(&path).map_err(PretrainedError::io("read", &path))?;
        let state: CheckpointState = serde_json::from_str(&text)
            .map_err(|error| PretrainedError::malformed(&path, "a checkpoint's state", error))?;
        if state.format != FORMAT {
            let expected = format!("checkpoint format {FORMAT}");
            return Err(PretrainedError::malformed(&path, expected, state.format).into());
        }
        // A run may be extended, so its length is not stored.
        if state.settings != as_stored(&self.settings) {
            let expected = format!("the run's settings {:?}", self.settings);
            let got = format!("{:?}; resume with the settings of the run", state.settings);
            return Err(PretrainedError::malformed(&path, expected, got).into());
        }
        let adapter_checkpoint = AdapterCheckpoint::read(checkpoint, self.model.device())?;
        let mut adapter = adapter_checkpoint.into_tensors();
        let moments_path = checkpoint.join("optimizer.safetensors");
        let mut moments = files::read_tensors(&moments_path, None, self.model.device())?;
        let critic =
            self.critic.is_some().then(|| self.read_critic(checkpoint, state.steps)).transpose()?;
        let names: Vec<String> =
            self.model.lora_parameters().into_iter().map(|(name, _)| name).collect();
        let mut weights = Vec::with_capacity(names.len());
        for name in &names {
            weights.push(take(&mut adapter, name, checkpoint)?);
        }
        self.optimizer.restore(
            &weights,
            |n, part| take(&mut moments, &format!("{}.{part}", names[n]), checkpoint),
            state.steps,
        )?;
        self.critic = critic;
        Ok(())
    }

    /// Reads the critic of a checkpoint.
    fn read_critic(&self, checkpoint: &Path, steps: usize) -> Result<Critic> {
        let path = checkpoint.join(CRITIC);
        let device = self.model.device();
        let mut tensors = files::read_tensors(&path, None, device)?;
        let mut critic = Critic::new(self.model.config().hidden_size, &self.settings, device)?;
        critic.restore(|name| take(&mut tensors, name, &path), steps)?;
        Ok(critic)
    }
}

/// Returns the moments of an optimiser, named after its parameters.
fn moments<S: std::fmt::Display>(optimizer: &AdamW, names: &[S]) -> Vec<(String, Tensor)> {
    let mut moments = Vec::new();
    for (n, part, tensor) in optimizer.state() {
        moments.push((format!("{}.{part}", names[n]), tensor.shallow_clone()));
    }
    moments
}

fn take(tensors: &mut BTreeMap<String, Tensor>, name: &str, path: &Path) -> Result<Tensor> {
    tensors
        .remove(name)
        .ok_or_else(|| PretrainedError::tensor(path, name, "a tensor of this name", "none").into())
}

/// Returns settings after a round trip through JSON, which may change the last bit of a number.
fn as_stored(settings: &LearnSettings) -> LearnSettings {
    let stored = serde_json::to_string(settings).and_then(|text| serde_json::from_str(&text));
    stored.unwrap_or(*settings)
}

/// Returns the complete checkpoints in `root`, oldest first; none if `root` does not exist.
///
/// # Errors
/// Fails if `root` cannot be listed.
pub fn checkpoints(root: &Path) -> Result<Vec<PathBuf>> {
    let mut by_step = Vec::new();
    if !root.exists() {
        return Ok(Vec::new());
    }
    for entry in std::fs::read_dir(root).map_err(PretrainedError::io("list", root))? {
        let path = entry.map_err(PretrainedError::io("list", root))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some(step) = name.strip_prefix(PREFIX).and_then(|step| step.parse::<usize>().ok()) {
            by_step.push((step, path));
        }
    }
    by_step.sort();
    Ok(by_step.into_iter().map(|(_, path)| path).collect())
}

/// Returns the unfinished checkpoints in `root`, which killed processes have left.
fn unfinished_checkpoints(root: &Path) -> Result<Vec<PathBuf>> {
    let mut unfinished = Vec::new();
    for entry in std::fs::read_dir(root).map_err(PretrainedError::io("list", root))? {
        let path = entry.map_err(PretrainedError::io("list", root))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let shown = name.strip_prefix('.').unwrap_or_default();
        let stem = shown.strip_suffix(".tmp").or_else(|| shown.strip_suffix(".old"));
        let step = stem.and_then(|stem| stem.strip_prefix(PREFIX)).unwrap_or_default();
        let is_step = step.len() >= 6 && step.bytes().all(|byte| byte.is_ascii_digit());
        if is_step && path.is_dir() {
            unfinished.push(path);
        }
    }
    Ok(unfinished)
}

//! Checkpoints of a training run: the adapter in PEFT's layout, the optimiser's state, and the
//! step.
//!
//! ```text
//! step-000050/adapter_model.safetensors, adapter_config.json   usable by itself
//! step-000050/optimizer.safetensors                            AdamW's moments
//! step-000050/critic.safetensors                               PPO's critic and its moments
//! step-000050/state.json                                       steps done, settings
//! step-000050/checksums.b3                                     of all of these; `b3sum --check` reads it too
//! ```
//!
//! Random numbers need no state: every draw is named by the run's seed and the step. A run that
//! resumes therefore continues as if it had not stopped, bit for bit on the CPU.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use corver_core::LearnSettings;
use corver_pretrained::PretrainedError;
use serde::{Deserialize, Serialize};
use tch::Tensor;

use crate::critic::{self, Critic};
use crate::error::Result;
use crate::files;
use crate::optimizer::AdamW;
use crate::policy::Policy;

const FORMAT: u32 = 1;
const PREFIX: &str = "step-";
const CRITIC: &str = "critic.safetensors";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    format: u32,
    steps: usize,
    settings: LearnSettings,
}

impl Policy {
    /// Writes a checkpoint into `root` (made if need be) and deletes all but the newest `keep`;
    /// returns its folder, which appears under its name only when it is complete.
    ///
    /// # Errors
    /// Where a file cannot be written.
    pub fn save_checkpoint(&self, root: &Path, keep: usize) -> Result<PathBuf> {
        std::fs::create_dir_all(root).map_err(PretrainedError::io("create", root))?;
        let folder = root.join(format!("{PREFIX}{:06}", self.steps()));
        let new = files::create_folder(&folder)?;
        self.model().save_adapter(new.path())?;
        let names: Vec<String> =
            self.model().lora_parameters().into_iter().map(|(name, _)| name).collect();
        let steps = self.optimizer().steps();
        files::write_tensors(
            &new.path().join("optimizer.safetensors"),
            &moments(self.optimizer(), &names),
        )?;
        if let Some(critic) = self.critic() {
            let named = |(name, tensor): (&str, &Tensor)| (name.to_owned(), tensor.shallow_clone());
            let mut tensors: Vec<_> =
                critic::NAMES.into_iter().zip(critic.parameters()).map(named).collect();
            tensors.extend(moments(critic.optimizer(), &critic::NAMES));
            files::write_tensors(&new.path().join(CRITIC), &tensors)?;
        }
        let state = State { format: FORMAT, steps, settings: *self.settings() };
        let state = serde_json::to_string_pretty(&state).expect("numbers and names serialise");
        files::write(&new.path().join(files::CHECKPOINT_STATE), state.as_bytes())?;
        files::write_checksums(new.path())?;
        files::finish_folder(new, &folder)?;
        let mut all = checkpoints(root)?;
        all.truncate(all.len().saturating_sub(keep.max(1)));
        for old in all {
            std::fs::remove_dir_all(&old).map_err(PretrainedError::io("delete", &old))?;
        }
        Ok(folder)
    }

    /// Takes over a checkpoint's adapter, optimiser state and step.
    ///
    /// # Errors
    /// Files that are damaged, cannot be read or do not fit, or settings other than the
    /// checkpoint's, the length of the run aside; the policy is then as before.
    pub fn resume(&mut self, checkpoint: &Path) -> Result<()> {
        files::verify_checksums(checkpoint)?;
        let path = checkpoint.join(files::CHECKPOINT_STATE);
        let text = std::fs::read_to_string(&path).map_err(PretrainedError::io("read", &path))?;
        let state: State = serde_json::from_str(&text)
            .map_err(|error| PretrainedError::malformed(&path, "a checkpoint's state", error))?;
        if state.format != FORMAT {
            let expected = format!("checkpoint format {FORMAT}");
            return Err(PretrainedError::malformed(&path, expected, state.format).into());
        }
        // A run may be extended: its schedule is then that of the longer run.
        let total_steps = state.settings.total_steps;
        if state.settings != as_stored(&LearnSettings { total_steps, ..*self.settings() }) {
            let expected = format!("the run's settings {:?}", self.settings());
            let got = format!("{:?}; resume with the settings of the run", state.settings);
            return Err(PretrainedError::malformed(&path, expected, got).into());
        }
        let stored = crate::lora::Stored::read(checkpoint, self.model().device())?;
        let mut adapter = stored.into_tensors();
        let moments_path = checkpoint.join("optimizer.safetensors");
        let mut moments = files::read_tensors(&moments_path, None, self.model().device())?;
        let critic =
            self.critic().is_some().then(|| self.critic_of(checkpoint, state.steps)).transpose()?;
        let names: Vec<String> =
            self.model().lora_parameters().into_iter().map(|(name, _)| name).collect();
        let take = |from: &mut BTreeMap<String, Tensor>, name: String| take(from, name, checkpoint);
        let weights = names
            .iter()
            .map(|name| take(&mut adapter, name.clone()))
            .collect::<Result<Vec<_>>>()?;
        let moment = |n: usize, part: &str| take(&mut moments, format!("{}.{part}", names[n]));
        self.optimizer_mut().restore(&weights, moment, state.steps)?;
        self.set_critic(critic);
        Ok(())
    }

    /// The critic as a checkpoint has it.
    fn critic_of(&self, checkpoint: &Path, steps: usize) -> Result<Critic> {
        let (path, device) = (checkpoint.join(CRITIC), self.model().device());
        let mut tensors = files::read_tensors(&path, None, device)?;
        let mut critic = Critic::new(self.model().config().hidden_size, self.settings(), device)?;
        critic.restore(|name| take(&mut tensors, name.to_owned(), &path), steps)?;
        Ok(critic)
    }
}

/// An optimiser's moments, named after its parameters.
fn moments<S: std::fmt::Display>(optimizer: &AdamW, names: &[S]) -> Vec<(String, Tensor)> {
    let named = |(n, part, tensor): (usize, String, &Tensor)| {
        (format!("{}.{part}", names[n]), tensor.shallow_clone())
    };
    optimizer.state().map(named).collect()
}

fn take(from: &mut BTreeMap<String, Tensor>, name: String, path: &Path) -> Result<Tensor> {
    from.remove(&name)
        .ok_or_else(|| PretrainedError::tensor(path, &name, "a tensor of this name", "none").into())
}

/// Settings as they come back from a state file, where the last bit of a number may differ.
fn as_stored(settings: &LearnSettings) -> LearnSettings {
    let stored = serde_json::to_string(settings).and_then(|text| serde_json::from_str(&text));
    stored.unwrap_or(*settings)
}

/// The complete checkpoints in `root`, oldest first.
///
/// # Errors
/// Where `root` cannot be listed; a `root` that does not exist has no checkpoint.
pub fn checkpoints(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    if !root.exists() {
        return Ok(Vec::new());
    }
    for entry in std::fs::read_dir(root).map_err(PretrainedError::io("list", root))? {
        let path = entry.map_err(PretrainedError::io("list", root))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some(step) = name.strip_prefix(PREFIX).and_then(|step| step.parse::<usize>().ok()) {
            found.push((step, path));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

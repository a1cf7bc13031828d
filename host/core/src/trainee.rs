//! The policy, as something that a run trains.

use std::path::Path;

use crate::{Learner, PartError, Sampler};

/// A policy that can be sampled, updated, prompted and saved.
pub trait Trainee: Sampler + Learner {
    /// The system prompt of everything sampled from now on; empty sends none.
    fn set_system_prompt(&mut self, prompt: &str);

    /// Writes a checkpoint into `folder`, whole or not at all, and deletes all but the newest `keep`.
    ///
    /// # Errors
    /// Where it cannot be written.
    fn save(&mut self, folder: &Path, keep: usize) -> Result<(), PartError>;
}

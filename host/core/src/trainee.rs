//! The policy, as something that a run trains.

use std::path::Path;

use serde::Serialize;

use crate::{Learner, PartError, Sampler, UpdateReport};

/// A policy that can be sampled, updated, prompted and saved.
pub trait Trainee: Sampler + Learner {
    /// The system prompt of everything sampled from now on; empty sends none.
    fn set_system_prompt(&mut self, prompt: &str);

    /// Writes a checkpoint into `folder`, whole or not at all, and deletes all but the newest
    /// `keep`.
    ///
    /// # Errors
    /// Where it cannot be written.
    fn save(&mut self, folder: &Path, keep: usize) -> Result<(), PartError>;
}

/// An answer to imitate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Demonstration {
    /// What is asked.
    pub question: String,
    /// The whole completion, tags included.
    pub completion: String,
}

/// A policy that learns from demonstrations.
pub trait Student: Trainee {
    /// One supervised step, towards these completions of their questions. The loss of the report is
    /// the mean of −log p over their tokens, nats.
    ///
    /// # Errors
    /// Where the device fails or the loss is not finite; the weights are then as they were.
    fn imitate(&mut self, demonstrations: &[Demonstration]) -> Result<UpdateReport, PartError>;
}

//! The libtorch policy, as something that a run can train.

use std::path::Path;

use corver_core::PartError;
use corver_learn::Policy;

use crate::train::Trainee;

impl Trainee for Policy {
    fn set_system_prompt(&mut self, prompt: &str) {
        Policy::set_system_prompt(self, Some(prompt.to_owned()).filter(|prompt| !prompt.is_empty()));
    }

    fn save(&mut self, folder: &Path, keep: usize) -> Result<(), PartError> {
        self.save_checkpoint(folder, keep)?;
        Ok(())
    }
}

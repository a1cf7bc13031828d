//! Supervised fine-tuning of the adapters on demonstrations, a cold start (paper, L1).
//!
//! ```text
//! L = −1/N · Σ_t log π(y_t | question, y_<t)     over the N tokens of the completions of a step, and none of their prompts
//! ```
//!
//! This is TRL's `SFTTrainer` on prompts and completions. The token that ends an answer belongs to
//! its completion.

use corver_core::{Demonstration, LearnSettings, LossSettings, LossType, Rollout, UpdateReport};

use crate::error::Result;
use crate::micro_batch::TrainingRow;
use crate::objective::Objective;
use crate::policy::Policy;
use crate::update::prepare;

impl Policy {
    /// Returns the tokens of each demonstration, prompt and completion together.
    ///
    /// # Errors
    /// Fails if the chat template refuses a question.
    pub fn demonstration_lengths(&self, demonstrations: &[Demonstration]) -> Result<Vec<usize>> {
        let mut lengths = Vec::with_capacity(demonstrations.len());
        for Demonstration { question, completion } in demonstrations {
            let (prompt, tokens) = self.dialogue.demonstration(question, completion)?;
            lengths.push(prompt.len() + tokens.len());
        }
        Ok(lengths)
    }

    /// Takes one optimiser step; the report's figures are those before it.
    pub(crate) fn sft_step(&mut self, demonstrations: &[Demonstration]) -> Result<UpdateReport> {
        let mut prompts = Vec::new();
        let mut rollouts = Vec::new();
        for (number, Demonstration { question, completion }) in demonstrations.iter().enumerate() {
            let (prompt, tokens) = self.dialogue.demonstration(question, completion)?;
            prompts.push(prompt);
            rollouts.push(Rollout {
                log_probs: vec![0.0; tokens.len()],
                tokens,
                ..Rollout::of_text(number, String::new())
            });
        }
        let mut rows = Vec::with_capacity(rollouts.len());
        for (prompt, rollout) in prompts.iter().zip(&rollouts) {
            rows.push(TrainingRow { prompt, rollout });
        }
        // BNPO's weights are the mean over all tokens; β = 0 needs no reference.
        let loss = LossSettings { loss_type: LossType::Bnpo, beta: 0.0, ..LossSettings::default() };
        let settings = LearnSettings {
            loss,
            num_iterations: 1,
            num_mini_batches: 1,
            micro_batch_tokens: self.micro_batch_tokens,
            ..self.settings
        };
        let prepared = prepare(&mut self.model, None, &rows, &settings, 1.0, 0)?;
        self.update_rows(prepared, &rows, Objective::Imitation, &settings, 1.0)
    }
}

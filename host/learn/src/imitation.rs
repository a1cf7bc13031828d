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
use crate::policy::Policy;
use crate::update::{Objective, Row, prepare};

impl Policy {
    /// Tokens of each demonstration, prompt and completion together.
    ///
    /// # Errors
    /// A chat template that refuses a question.
    pub fn lengths(&self, demonstrations: &[Demonstration]) -> Result<Vec<usize>> {
        let length = |one: &Demonstration| {
            let (prompt, completion) =
                self.dialogue().demonstration(&one.question, &one.completion)?;
            Ok(prompt.len() + completion.len())
        };
        demonstrations.iter().map(length).collect()
    }

    /// One step; the figures of the report are those before it.
    pub(crate) fn follow(&mut self, demonstrations: &[Demonstration]) -> Result<UpdateReport> {
        let (mut prompts, mut rollouts) = (Vec::new(), Vec::new());
        for (question, one) in demonstrations.iter().enumerate() {
            let (prompt, tokens) = self.dialogue().demonstration(&one.question, &one.completion)?;
            prompts.push(prompt);
            rollouts.push(Rollout {
                log_probs: vec![0.0; tokens.len()],
                tokens,
                ..Rollout::of_text(question, String::new())
            });
        }
        let rows: Vec<Row<'_>> = prompts
            .iter()
            .zip(&rollouts)
            .map(|(prompt, rollout)| Row { prompt, rollout })
            .collect();
        // The mean over all tokens, and nothing of a reference.
        let loss = LossSettings { loss_type: LossType::Bnpo, beta: 0.0, ..LossSettings::default() };
        let settings = LearnSettings { loss, num_mini_batches: 1, ..*self.settings() };
        let mut prepared = prepare(self.model_mut(), None, &rows, &settings, 1.0, 0)?;
        self.iterate(&mut prepared, 0, Objective::Imitation, &settings, 1.0)
    }
}

//! Updates of the policy.

use std::path::Path;

use corver_core::advantage::Pair;
use corver_core::{
    Advantages, Algorithm, BoxError, Demonstration, LearnSettings, Learner, Rollout, Sampling,
    Signal, TrainingBatch, UpdateReport,
};
use serde_json::json;

use crate::error::{LearnError, Result};
use crate::files;
use crate::memory::{Peak, log_peak};
use crate::micro_batch::TrainingRow;
use crate::objective::{Objective, UpdateContext};
use crate::optimizer::clip_gradients;
use crate::policy::Policy;
use crate::update::{Gradient, PreparedUpdate, gradient, prepare};
use crate::update_report::mean_report;

impl Policy {
    /// Splits the rows of a batch, and computes the reference's log-probabilities and the critic's
    /// values.
    fn prepare_update(
        &mut self,
        rows: &[TrainingRow<'_>],
        sampling: &Sampling,
    ) -> Result<PreparedUpdate> {
        let settings =
            LearnSettings { micro_batch_tokens: self.micro_batch_tokens, ..self.settings };
        prepare(
            &mut self.model,
            self.critic.as_ref(),
            rows,
            &settings,
            learning_temperature(sampling),
            sampling.max_completion_length,
        )
    }

    fn learn(&mut self, batch: &TrainingBatch<'_>, signal: &Signal) -> Result<UpdateReport> {
        let is_dpo = self.settings.algorithm == Algorithm::Dpo;
        match signal {
            Signal::Advantages(advantages) if !is_dpo => {
                check_shape(batch.rollouts, advantages)?;
                self.update_on(batch, Objective::Clipped(advantages))
            }
            Signal::Pairs(pairs) if is_dpo => {
                let paired = PairedRollouts::new(batch.rollouts, pairs);
                let batch = TrainingBatch { rollouts: &paired.rollouts, ..*batch };
                self.update_on(&batch, Objective::Preference(&paired.signs))
            }
            Signal::Advantages(_) | Signal::Pairs(_) => Err(LearnError::Input {
                what: "update",
                expected: format!("the signal of {:?}", self.settings.algorithm),
                got: "another".into(),
            }),
        }
    }

    /// Updates the policy on the rollouts of a batch.
    fn update_on(
        &mut self,
        batch: &TrainingBatch<'_>,
        objective: Objective<'_>,
    ) -> Result<UpdateReport> {
        let peak = Peak::begin(self.model.device());
        let prompts = self.dialogue.prompts(batch.questions, batch.sampling)?;
        let rows = training_rows(batch.rollouts, &prompts)?;
        let lengths: Vec<usize> =
            batch.rollouts.iter().map(|rollout| rollout.tokens.len()).collect();
        let prepared = match self.prepared.take() {
            Some(prepared) if prepared.lengths == lengths => prepared,
            _ => self.prepare_update(&rows, batch.sampling)?,
        };
        let settings = self.settings;
        let temperature = learning_temperature(batch.sampling);
        let report = self.update_rows(prepared, &rows, objective, &settings, temperature)?;
        log_peak("update", peak);
        Ok(report)
    }

    /// Runs every iteration over every mini-batch of a step.
    pub(super) fn update_rows(
        &mut self,
        mut prepared: PreparedUpdate,
        rows: &[TrainingRow<'_>],
        objective: Objective<'_>,
        settings: &LearnSettings,
        temperature: f64,
    ) -> Result<UpdateReport> {
        // The first update changes what later mini-batches would compute.
        if prepared.mini_batches.len() > 1 {
            prepared.set_old_log_probs(&mut self.model, temperature)?;
        }
        let mut report = UpdateReport::default();
        for _ in 0..settings.num_iterations {
            let mut parts = Vec::new();
            for mini_batch in 0..prepared.mini_batches.len() {
                let part = self
                    .optimizer_step(
                        &mut prepared,
                        rows,
                        mini_batch,
                        objective,
                        settings,
                        temperature,
                    )
                    .map_err(|error| self.dump_batch(error, rows, objective))?;
                parts.push((prepared.mini_batches[mini_batch].num_tokens, part));
            }
            let next = mean_report(&parts);
            report = UpdateReport { mismatch: report.mismatch.or(next.mismatch), ..next };
        }
        if prepared.was_halved {
            self.micro_batch_tokens = (self.micro_batch_tokens / 2).max(1);
        }
        Ok(report)
    }

    /// Writes the batch whose loss or gradient is not finite, and adds its path to the error. If
    /// the write fails, the error stays as it is: the first failure matters more.
    fn dump_batch(
        &self,
        mut error: LearnError,
        rows: &[TrainingRow<'_>],
        objective: Objective<'_>,
    ) -> LearnError {
        if let (LearnError::NotFinite { step, batch, .. }, Some(folder)) =
            (&mut error, &self.failure_folder)
        {
            let rollouts: Vec<&Rollout> = rows.iter().map(|row| row.rollout).collect();
            let path = folder.join(format!("not-finite-{step:06}.json"));
            let content = match objective {
                Objective::Clipped(advantages) => {
                    json!({ "rollouts": rollouts, "advantages": advantages.values })
                }
                Objective::Preference(signs) => json!({ "rollouts": rollouts, "signs": signs }),
                Objective::Imitation => json!({ "rollouts": rollouts }),
            };
            if files::write(&path, content.to_string().as_bytes()).is_ok() {
                *batch = Some(path);
            }
        }
        error
    }

    /// Takes one optimiser step on a mini-batch.
    fn optimizer_step(
        &mut self,
        prepared: &mut PreparedUpdate,
        rows: &[TrainingRow<'_>],
        mini_batch: usize,
        objective: Objective<'_>,
        settings: &LearnSettings,
        temperature: f64,
    ) -> Result<UpdateReport> {
        let critic = match objective {
            Objective::Clipped(_) => self.critic.as_ref(),
            Objective::Preference(_) | Objective::Imitation => None,
        };
        let num_questions = prepared.num_questions();
        let context =
            UpdateContext { rows, objective, settings, temperature, critic, num_questions };
        let Gradient { mut gradients, mut critic_gradients, mut report } =
            gradient(&mut self.model, prepared, mini_batch, &context)?;
        // Every figure is checked before a weight changes.
        let step = self.optimizer.steps();
        check_finite("loss", report.loss, step)?;
        if let Some(critic_report) = report.critic {
            check_finite("loss of the critic", critic_report.loss, step)?;
        }
        let max_norm = self.settings.max_grad_norm;
        report.grad_norm = clip_gradients(&mut gradients, max_norm)?;
        check_finite("gradient norm", report.grad_norm, step)?;
        let critic_norm = clip_gradients(&mut critic_gradients, max_norm)?;
        check_finite("gradient norm of the critic", critic_norm, step)?;
        report.learning_rate = self.schedule.rate(step);
        self.optimizer.step(&gradients, report.learning_rate)?;
        if let Some(trained) = self.critic.as_mut().filter(|_| !critic_gradients.is_empty()) {
            trained.step(&critic_gradients)?;
        }
        Ok(report)
    }
}

fn check_finite(what: &'static str, got: f64, step: usize) -> Result<()> {
    if got.is_finite() {
        return Ok(());
    }
    Err(LearnError::NotFinite { what, got, step, batch: None })
}

/// Returns the temperature of the log-probabilities in the loss. Greedy decoding records those at 1.
fn learning_temperature(sampling: &Sampling) -> f64 {
    if sampling.temperature == 0.0 { 1.0 } else { sampling.temperature }
}

/// Joins each rollout with its prompt.
fn training_rows<'a>(
    rollouts: &'a [Rollout],
    prompts: &'a [Vec<u32>],
) -> Result<Vec<TrainingRow<'a>>> {
    let mut rows = Vec::with_capacity(rollouts.len());
    for rollout in rollouts {
        let Some(prompt) = prompts.get(rollout.question) else {
            return Err(LearnError::Input {
                what: "rollout.question",
                expected: format!("one of the {} questions of the batch", prompts.len()),
                got: rollout.question.to_string(),
            });
        };
        if rollout.tokens.len() != rollout.log_probs.len() {
            return Err(LearnError::Input {
                what: "rollout",
                expected: format!("as many log-probabilities as tokens, {}", rollout.tokens.len()),
                got: rollout.log_probs.len().to_string(),
            });
        }
        rows.push(TrainingRow { prompt, rollout });
    }
    Ok(rows)
}

/// Checks that there is an advantage for each token.
fn check_shape(rollouts: &[Rollout], advantages: &Advantages) -> Result<()> {
    let lengths: Vec<usize> = rollouts.iter().map(|rollout| rollout.tokens.len()).collect();
    let got: Vec<usize> = advantages.values.iter().map(Vec::len).collect();
    if got == lengths {
        return Ok(());
    }
    Err(LearnError::Input {
        what: "advantages",
        expected: format!("{lengths:?} by row"),
        got: format!("{got:?}"),
    })
}

/// The rollouts of DPO's pairs.
struct PairedRollouts {
    /// Chosen and rejected rollouts, in the order of the batch.
    rollouts: Vec<Rollout>,
    /// Sign of each rollout: 1 if it was chosen, −1 if it was rejected.
    signs: Vec<f64>,
}

impl PairedRollouts {
    fn new(rollouts: &[Rollout], pairs: &[Pair]) -> Self {
        let mut signs = vec![0.0; rollouts.len()];
        for pair in pairs {
            signs[pair.chosen] = 1.0;
            signs[pair.rejected] = -1.0;
        }
        let mut paired = Vec::new();
        for (rollout, sign) in rollouts.iter().zip(&signs) {
            if *sign != 0.0 {
                paired.push(rollout.clone());
            }
        }
        signs.retain(|sign| *sign != 0.0);
        Self { rollouts: paired, signs }
    }
}

impl Learner for Policy {
    fn set_system_prompt(&mut self, prompt: &str) {
        self.dialogue.set_system_prompt(prompt);
    }

    /// Computes the critic's values, and on a GPU the reference's log-probabilities.
    ///
    /// On the CPU the reference would take the cores from the reward, which runs concurrently. DPO
    /// prepares nothing, because its pairs are unknown before the reward.
    fn prepare(
        &mut self,
        batch: &TrainingBatch<'_>,
    ) -> std::result::Result<Option<Vec<Vec<f64>>>, BoxError> {
        let is_worth_it =
            self.model.device().is_cuda() && self.settings.algorithm != Algorithm::Dpo;
        if self.critic.is_none() && !is_worth_it {
            return Ok(None);
        }
        let prompts = self.dialogue.prompts(batch.questions, batch.sampling)?;
        let rows = training_rows(batch.rollouts, &prompts)?;
        let prepared = self.prepare_update(&rows, batch.sampling)?;
        let values = prepared.values.clone();
        self.prepared = Some(prepared);
        Ok(values)
    }

    fn update(
        &mut self,
        batch: &TrainingBatch<'_>,
        signal: &Signal,
    ) -> std::result::Result<UpdateReport, BoxError> {
        Ok(self.learn(batch, signal)?)
    }

    fn imitate(
        &mut self,
        demonstrations: &[Demonstration],
    ) -> std::result::Result<UpdateReport, BoxError> {
        Ok(self.sft_step(demonstrations)?)
    }

    fn save(&mut self, folder: &Path, keep: usize) -> std::result::Result<(), BoxError> {
        self.save_checkpoint(folder, keep)?;
        Ok(())
    }
}

//! The policy: samples completions, and learns from their advantages.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use corver_core::advantage::Pair;
use corver_core::{
    Advantages, Algorithm, BoxError, Compatibility, Decoding, Demonstration, LearnSettings,
    Learner, Precision, Question, Rollout, Sampler, Sampling, Signal, TrainingBatch, UpdateReport,
};
use corver_pretrained::{ChatTokenizer, Dialogue};
use serde_json::json;

use crate::critic::Critic;
use crate::error::{LearnError, Result};
use crate::files;
use crate::memory::Peak;
use crate::model::Model;
use crate::optimizer::{AdamW, clip_gradients};
use crate::sample::{MAX_ROWS, Surroundings, Watch, sample_within};
use crate::schedule::CosineSchedule;
use crate::update::{Gradient, Lesson, Objective, Prepared, Row, gradient, mean_report, prepare};

/// A model with adapters, its tokenizer, and the state of its training.
pub struct Policy {
    model: Model,
    dialogue: Dialogue,
    settings: LearnSettings,
    optimizer: AdamW,
    schedule: CosineSchedule,
    /// Of PPO.
    critic: Option<Critic>,
    /// For the next update.
    prepared: Option<Prepared>,
    max_rows: usize,
    failures: Option<PathBuf>,
    watch: Box<Watch<'static>>,
}

impl std::fmt::Debug for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Policy")
            .field("model", &self.model)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Policy {
    /// Adds adapters to `model` unless it has some (of a loaded adapter); `seed` draws them. No
    /// system prompt at first.
    ///
    /// # Errors
    /// Settings out of range, ids that the model's embedding does not have, or no memory on the
    /// device.
    pub fn new(
        mut model: Model,
        tokenizer: ChatTokenizer,
        settings: LearnSettings,
        seed: u64,
    ) -> Result<Self> {
        if let Some(problem) = corver_settings::check("update", &settings).into_iter().next() {
            return Err(problem.into());
        }
        if tokenizer.vocab_size() > model.config().vocab_size {
            return Err(LearnError::Input {
                what: "tokenizer",
                expected: format!(
                    "at most {} ids, the model's embedding",
                    model.config().vocab_size
                ),
                got: format!("{} ids", tokenizer.vocab_size()),
            });
        }
        if model.lora().is_none() {
            model.add_lora(&settings.lora, seed)?;
        }
        let parameters =
            model.lora_parameters().into_iter().map(|(_, tensor)| tensor.shallow_clone()).collect();
        let optimizer = AdamW::new(parameters, settings.optimizer)?;
        let steps = settings.total_steps * settings.updates_per_step();
        let schedule = CosineSchedule::new(settings.learning_rate, steps, settings.warmup_ratio);
        let critic = match settings.algorithm {
            Algorithm::Ppo => {
                Some(Critic::new(model.config().hidden_size, &settings, model.device())?)
            }
            _ => None,
        };
        Ok(Self {
            model,
            critic,
            dialogue: Dialogue::new(tokenizer),
            settings,
            optimizer,
            schedule,
            prepared: None,
            max_rows: MAX_ROWS,
            failures: None,
            watch: Box::new(|_| ControlFlow::Continue(())),
        })
    }

    /// The same policy, asked under this system prompt.
    #[must_use]
    pub fn with_system_prompt(mut self, system_prompt: Option<String>) -> Self {
        self.dialogue.set_system_prompt(&system_prompt.unwrap_or_default());
        self
    }

    /// The same policy, with rollouts whose token spans are exact, or found as the published code
    /// does: every token decoded alone, lengths added up.
    #[must_use]
    pub fn with_compatibility(self, compatibility: Compatibility) -> Self {
        Self { dialogue: self.dialogue.with_compatibility(compatibility), ..self }
    }

    /// The same policy, which decodes at most so many rows at once (those of one question always
    /// are).
    #[must_use]
    pub fn with_max_rows(mut self, max_rows: usize) -> Self {
        self.max_rows = max_rows;
        self
    }

    /// From now on an update whose loss or gradient is not finite writes its batch into this
    /// folder, for inspection.
    pub fn keep_failures(&mut self, folder: &Path) {
        self.failures = Some(folder.to_owned());
    }

    /// From now on `watch` hears of every sampling every few tokens, and can break it off
    /// ([`LearnError::Stopped`]).
    pub fn set_watch(&mut self, watch: impl FnMut(Decoding) -> ControlFlow<()> + 'static) {
        self.watch = Box::new(watch);
    }

    /// The same policy, whose reference is what it is now, in place of the base model: for one that
    /// goes on from an adapter.
    ///
    /// # Errors
    /// Where the device has no room for another adapter.
    pub fn with_itself_as_reference(mut self) -> Result<Self> {
        self.model.keep_as_reference()?;
        Ok(self)
    }

    /// Whether the adapters take part in sampling; without them the base model answers. Returns
    /// whether they did before.
    pub fn set_adapters(&mut self, on: bool) -> bool {
        self.model.set_adapters(on)
    }

    /// The model with its adapters.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The tokenizer.
    #[must_use]
    pub fn tokenizer(&self) -> &ChatTokenizer {
        self.dialogue.tokenizer()
    }

    /// How it learns.
    #[must_use]
    pub fn settings(&self) -> &LearnSettings {
        &self.settings
    }

    /// Updates done.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.optimizer.steps() / self.settings.updates_per_step()
    }

    pub(crate) fn optimizer(&self) -> &AdamW {
        &self.optimizer
    }

    pub(crate) fn model_mut(&mut self) -> &mut Model {
        &mut self.model
    }

    pub(crate) fn dialogue(&self) -> &Dialogue {
        &self.dialogue
    }

    pub(crate) fn critic(&self) -> Option<&Critic> {
        self.critic.as_ref()
    }

    pub(crate) fn optimizer_mut(&mut self) -> &mut AdamW {
        &mut self.optimizer
    }

    pub(crate) fn set_critic(&mut self, critic: Option<Critic>) {
        self.critic = critic;
    }

    /// That no prompt of these questions is refused for its length.
    ///
    /// # Errors
    /// The first question that is, and those of [`ChatTokenizer::prompt`].
    pub fn check_prompts(&self, questions: &[Question], sampling: &Sampling) -> Result<()> {
        Ok(self.dialogue.check_prompts(questions, sampling)?)
    }

    /// Returns the rollouts of `questions`, and hands them over as [`Sampler::sample`] says: on a GPU
    /// while others are drawn; on the CPU at the end, because extraction would compete with sampling
    /// for the cores.
    fn draw(
        &mut self,
        questions: &[Question],
        sampling: &Sampling,
        seed: u64,
        on_finished: &mut dyn FnMut(usize, &Rollout),
    ) -> Result<Vec<Rollout>> {
        self.prepared = None;
        let prompts = self.dialogue.prompts(questions, sampling)?;
        let slices: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
        let meanwhile = self.model.device().is_cuda();
        let mut rollouts: Vec<Option<Rollout>> =
            vec![None; prompts.len() * sampling.num_generations];
        let dialogue = &self.dialogue;
        let surroundings = Surroundings {
            max_rows: self.max_rows,
            ends: &|tokens| Ok(dialogue.tokenizer().ends(tokens)?),
            watch: &mut *self.watch,
            ended: &mut |index, completion| {
                let rollout = dialogue.rollout(
                    index / sampling.num_generations,
                    completion.tokens,
                    completion.log_probs,
                    completion.finished,
                )?;
                if meanwhile {
                    on_finished(index, &rollout);
                }
                rollouts[index] = Some(rollout);
                Ok(())
            },
        };
        let peak = Peak::begin(self.model.device());
        sample_within(surroundings, &self.model, &slices, sampling, seed)?;
        log_peak("rollout", peak);
        let rollouts: Vec<Rollout> = rollouts.into_iter().flatten().collect();
        if !meanwhile {
            for (index, rollout) in rollouts.iter().enumerate() {
                on_finished(index, rollout);
            }
        }
        Ok(rollouts)
    }

    /// Writes the adapter alone, in PEFT's layout and this precision, into a folder that appears
    /// under its name only when it is complete.
    ///
    /// # Errors
    /// Where a file cannot be written.
    pub fn save_adapter(&self, folder: &Path, precision: Precision) -> Result<()> {
        let new = files::create_folder(folder)?;
        self.model.save_adapter_in(new.path(), precision)?;
        files::finish_folder(new, folder)
    }

    /// Builds the rows of a batch, and computes the reference's log-probabilities and the critic's
    /// values.
    fn prepare(&mut self, batch: &TrainingBatch<'_>) -> Result<Prepared> {
        let TrainingBatch { questions, sampling, rollouts } = *batch;
        let prompts = self.dialogue.prompts(questions, sampling)?;
        let rows = rows(rollouts, &prompts)?;
        prepare(
            &mut self.model,
            self.critic.as_ref(),
            &rows,
            &self.settings,
            learning_temperature(sampling),
            sampling.max_completion_length,
        )
    }

    fn learn(&mut self, batch: &TrainingBatch<'_>, signal: &Signal) -> Result<UpdateReport> {
        let is_dpo = self.settings.algorithm == Algorithm::Dpo;
        match signal {
            Signal::Advantages(advantages) if !is_dpo => {
                check_shape(batch.rollouts, advantages)?;
                self.learn_from(batch, Objective::Clipped(advantages))
            }
            Signal::Pairs(pairs) if is_dpo => {
                let (rollouts, signs) = paired(batch.rollouts, pairs);
                let batch = TrainingBatch { rollouts: &rollouts, ..*batch };
                self.learn_from(&batch, Objective::Preference(&signs))
            }
            Signal::Advantages(_) | Signal::Pairs(_) => Err(LearnError::Input {
                what: "update",
                expected: format!("the signal of {:?}", self.settings.algorithm),
                got: "another".into(),
            }),
        }
    }

    fn learn_from(
        &mut self,
        batch: &TrainingBatch<'_>,
        objective: Objective<'_>,
    ) -> Result<UpdateReport> {
        let peak = Peak::begin(self.model.device());
        let lengths: Vec<usize> =
            batch.rollouts.iter().map(|rollout| rollout.tokens.len()).collect();
        let prepared = self.prepared.take().filter(|prepared| prepared.lengths == lengths);
        let mut prepared = match prepared {
            Some(prepared) => prepared,
            None => self.prepare(batch)?,
        };
        let settings = self.settings;
        let temperature = learning_temperature(batch.sampling);
        let mut report = UpdateReport::default();
        if prepared.mini_batches.len() > 1 {
            prepared.note_log_probs(&mut self.model, temperature)?;
        }
        for _ in 0..settings.num_iterations {
            let mut parts = Vec::new();
            for mini_batch in 0..prepared.mini_batches.len() {
                let part = self
                    .iterate(&mut prepared, mini_batch, objective, &settings, temperature)
                    .map_err(|error| self.keep(error, batch.rollouts, objective))?;
                parts.push((prepared.mini_batches[mini_batch].num_tokens, part));
            }
            let next = mean_report(&parts);
            report = UpdateReport { mismatch: report.mismatch.or(next.mismatch), ..next };
        }
        log_peak("update", peak);
        Ok(report)
    }

    /// Writes the batch whose loss or gradient is not finite, if a folder is set; a write that fails
    /// leaves the error as it is.
    fn keep(
        &self,
        mut error: LearnError,
        rollouts: &[Rollout],
        objective: Objective<'_>,
    ) -> LearnError {
        if let (LearnError::NotFinite { step, batch, .. }, Some(folder)) =
            (&mut error, &self.failures)
        {
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
    pub(crate) fn iterate(
        &mut self,
        prepared: &mut Prepared,
        mini_batch: usize,
        objective: Objective<'_>,
        settings: &LearnSettings,
        temperature: f64,
    ) -> Result<UpdateReport> {
        let critic = match objective {
            Objective::Clipped(_) => self.critic.as_ref(),
            Objective::Preference(_) | Objective::Imitation => None,
        };
        let lesson = Lesson { objective, settings, temperature, critic };
        let Gradient { mut gradients, mut of_critic, mut report } =
            gradient(&mut self.model, prepared, mini_batch, &lesson)?;
        let step = self.optimizer.steps();
        let finite = |what, got: f64| match got.is_finite() {
            true => Ok(got),
            false => Err(LearnError::NotFinite { what, got, step, batch: None }),
        };
        finite("loss", report.loss)?;
        if let Some(update) = report.critic {
            finite("loss of the critic", update.loss)?;
        }
        let max_norm = self.settings.max_grad_norm;
        report.grad_norm = finite("gradient norm", clip_gradients(&mut gradients, max_norm)?)?;
        finite("gradient norm of the critic", clip_gradients(&mut of_critic, max_norm)?)?;
        report.learning_rate = self.schedule.rate(step);
        self.optimizer.step(&gradients, report.learning_rate)?;
        if let Some(trained) = self.critic.as_mut().filter(|_| !of_critic.is_empty()) {
            trained.step(&of_critic)?;
        }
        Ok(report)
    }
}

/// Logs the most memory that a phase took, where the system tells.
fn log_peak(phase: &str, peak: Result<Peak>) {
    if let Ok(bytes) = peak.and_then(|peak| peak.bytes()) {
        tracing::info!(phase, mib = bytes >> 20, "peak memory");
    }
}

/// Returns the temperature that log-probabilities are taken at: greedy decoding notes those at 1.
fn learning_temperature(sampling: &Sampling) -> f64 {
    if sampling.temperature == 0.0 { 1.0 } else { sampling.temperature }
}

/// Joins each rollout with its prompt, and checks that they belong together.
fn rows<'a>(rollouts: &'a [Rollout], prompts: &'a [Vec<u32>]) -> Result<Vec<Row<'a>>> {
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
        rows.push(Row { prompt, rollout });
    }
    Ok(rows)
}

/// That there is an advantage for each token.
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

/// Returns the rollouts of the pairs in the order of the batch, each with 1 if it was chosen and −1 if
/// it was rejected.
fn paired(rollouts: &[Rollout], pairs: &[Pair]) -> (Vec<Rollout>, Vec<f64>) {
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
    (paired, signs)
}

impl Sampler for Policy {
    fn sample(
        &mut self,
        questions: &[Question],
        sampling: &Sampling,
        seed: u64,
        on_finished: &mut dyn FnMut(usize, &Rollout),
    ) -> std::result::Result<Vec<Rollout>, BoxError> {
        Ok(self.draw(questions, sampling, seed, on_finished)?)
    }
}

impl Learner for Policy {
    fn set_system_prompt(&mut self, prompt: &str) {
        self.dialogue.set_system_prompt(prompt);
    }

    /// On a GPU the reference's log-probabilities; on the CPU they would take from the reward the time
    /// that they would save. The critic's values in any case. Nothing for DPO, whose pairs are not
    /// known before the reward.
    fn prepare(
        &mut self,
        batch: &TrainingBatch<'_>,
    ) -> std::result::Result<Option<Vec<Vec<f64>>>, BoxError> {
        let is_worth_it =
            self.model.device().is_cuda() && self.settings.algorithm != Algorithm::Dpo;
        if self.critic.is_none() && !is_worth_it {
            return Ok(None);
        }
        let prepared = Policy::prepare(self, batch)?;
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
        Ok(self.follow(demonstrations)?)
    }

    fn save(&mut self, folder: &Path, keep: usize) -> std::result::Result<(), BoxError> {
        self.save_checkpoint(folder, keep)?;
        Ok(())
    }
}

//! The policy: samples completions, and learns from their advantages.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use corver_core::{
    Advantages, Algorithm, Compatibility, Decoding, LearnSettings, Learner, PartError, Precision,
    Question, Rollout, Sampler, Sampling, Trainee, UpdateReport,
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

/// What the last call of `sample` was about: an update needs the prompts, and the temperature that
/// the log-probabilities belong to.
#[derive(Debug)]
struct Drawn {
    prompts: Vec<Vec<u32>>,
    temperature: f64,
    max_completion_length: usize,
}

/// A model with adapters, its tokenizer, and the state of its training.
pub struct Policy {
    model: Model,
    dialogue: Dialogue,
    settings: LearnSettings,
    optimizer: AdamW,
    schedule: CosineSchedule,
    /// Of PPO.
    critic: Option<Critic>,
    drawn: Option<Drawn>,
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
            drawn: None,
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

    /// Hands completions to `ended` while others are drawn, where that costs them no time.
    fn draw(
        &mut self,
        questions: &[Question],
        sampling: &Sampling,
        seed: u64,
        ended: &mut dyn FnMut(Vec<(usize, Rollout)>),
    ) -> Result<Vec<Rollout>> {
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
            ended: &mut |place, completion| {
                let question = place / sampling.num_generations;
                let rollout = dialogue.rollout(
                    question,
                    completion.tokens,
                    completion.log_probs,
                    completion.finished,
                )?;
                if meanwhile {
                    ended(vec![(place, rollout.clone())]);
                }
                rollouts[place] = Some(rollout);
                Ok(())
            },
        };
        let peak = Peak::begin(self.model.device());
        sample_within(surroundings, &self.model, &slices, sampling, seed)?;
        log_peak("rollout", peak);
        let rollouts: Vec<Rollout> = rollouts.into_iter().flatten().collect();
        if !meanwhile {
            ended(rollouts.iter().cloned().enumerate().collect());
        }
        self.note(prompts, sampling);
        Ok(rollouts)
    }

    /// Takes note of rollouts that something else has drawn from these weights, for the update on
    /// them.
    ///
    /// # Errors
    /// As of the prompts of a sampling of its own.
    pub fn sampled_elsewhere(&mut self, questions: &[Question], sampling: &Sampling) -> Result<()> {
        let prompts = self.dialogue.prompts(questions, sampling)?;
        self.note(prompts, sampling);
        Ok(())
    }

    fn note(&mut self, prompts: Vec<Vec<u32>>, sampling: &Sampling) {
        // Greedy decoding notes log-probabilities at temperature 1.
        let temperature = if sampling.temperature == 0.0 { 1.0 } else { sampling.temperature };
        let max_completion_length = sampling.max_completion_length;
        self.prepared = None;
        self.drawn = Some(Drawn { prompts, temperature, max_completion_length });
    }

    /// Writes the adapter alone, in PEFT's layout and this precision, into a folder that appears
    /// under its name only when it is complete.
    ///
    /// # Errors
    /// Where a file cannot be written.
    pub fn save_adapter(&self, folder: &Path, precision: Precision) -> Result<()> {
        files::write_folder(folder, |temporary| self.model.save_adapter_in(temporary, precision))
    }

    /// Joins each rollout with its prompt, and computes what needs no advantages.
    fn prepare(&mut self, rollouts: &[Rollout]) -> Result<Prepared> {
        let Some(drawn) = &self.drawn else {
            return Err(LearnError::Input {
                what: "update",
                expected: "rollouts of the last call of `sample`".into(),
                got: "no call of `sample` before".into(),
            });
        };
        let rows = rows(rollouts, drawn)?;
        let (temperature, longest) = (drawn.temperature, drawn.max_completion_length);
        prepare(&mut self.model, self.critic.as_ref(), &rows, &self.settings, temperature, longest)
    }

    fn learn(&mut self, rollouts: &[Rollout], advantages: &Advantages) -> Result<UpdateReport> {
        check_shape(rollouts, advantages)?;
        match self.settings.algorithm {
            Algorithm::Dpo => {
                let (rollouts, advantages) = paired(rollouts, advantages);
                self.learn_from(&rollouts, &advantages)
            }
            _ => self.learn_from(rollouts, advantages),
        }
    }

    fn learn_from(
        &mut self,
        rollouts: &[Rollout],
        advantages: &Advantages,
    ) -> Result<UpdateReport> {
        let peak = Peak::begin(self.model.device());
        let lengths: Vec<usize> = rollouts.iter().map(|rollout| rollout.tokens.len()).collect();
        let prepared = self.prepared.take().filter(|prepared| prepared.lengths == lengths);
        let mut prepared = prepared.map_or_else(|| self.prepare(rollouts), Ok)?;
        let (settings, objective) = (self.settings, Objective::of(self.settings.algorithm));
        let temperature = self.drawn.as_ref().map_or(1.0, |drawn| drawn.temperature);
        let mut report = UpdateReport::default();
        if prepared.mini_batches.len() > 1 {
            prepared.note_log_probs(&mut self.model, temperature)?;
        }
        for _ in 0..self.settings.num_iterations {
            let mut parts = Vec::new();
            for mini_batch in 0..prepared.mini_batches.len() {
                let part = self.iterate(
                    &mut prepared,
                    mini_batch,
                    objective,
                    advantages,
                    &settings,
                    temperature,
                );
                let part = part.map_err(|error| self.keep(error, rollouts, advantages))?;
                parts.push((prepared.mini_batches[mini_batch].num_tokens, part));
            }
            let next = mean_report(&parts);
            report = UpdateReport { mismatch: report.mismatch.or(next.mismatch), ..next };
        }
        log_peak("update", peak);
        Ok(report)
    }

    /// Writes the batch whose loss or gradient is not finite, where a folder is set; a write that
    /// fails leaves the error as it is.
    fn keep(
        &self,
        mut error: LearnError,
        rollouts: &[Rollout],
        advantages: &Advantages,
    ) -> LearnError {
        if let (LearnError::NotFinite { step, batch, .. }, Some(folder)) =
            (&mut error, &self.failures)
        {
            let path = folder.join(format!("not-finite-{step:06}.json"));
            let content = json!({ "rollouts": rollouts, "advantages": advantages.values });
            if files::write_whole(&path, content.to_string().as_bytes()).is_ok() {
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
        objective: Objective,
        advantages: &Advantages,
        settings: &LearnSettings,
        temperature: f64,
    ) -> Result<UpdateReport> {
        let critic = self.critic.as_ref().filter(|_| objective == Objective::Clipped);
        let lesson = Lesson { objective, advantages, settings, temperature, critic };
        let Gradient { mut gradients, mut of_critic, mut report } =
            gradient(&mut self.model, prepared, mini_batch, &lesson)?;
        let step = self.optimizer.steps();
        let finite = |what, got: f64| match got.is_finite() {
            true => Ok(got),
            false => Err(LearnError::NotFinite { what, got, step, batch: None }),
        };
        finite("loss", report.loss)?;
        if let Some(critic) = report.critic {
            finite("loss of the critic", critic.loss)?;
        }
        let max_norm = self.settings.max_grad_norm;
        report.grad_norm = finite("gradient norm", clip_gradients(&mut gradients, max_norm)?)?;
        finite("gradient norm of the critic", clip_gradients(&mut of_critic, max_norm)?)?;
        report.learning_rate = self.schedule.rate(step);
        self.optimizer.step(&gradients, report.learning_rate)?;
        if let Some(critic) = self.critic.as_mut().filter(|_| !of_critic.is_empty()) {
            critic.step(&of_critic)?;
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

/// Joins each rollout with its prompt, checking that they belong together.
fn rows<'a>(rollouts: &'a [Rollout], drawn: &'a Drawn) -> Result<Vec<Row<'a>>> {
    let wrong =
        |what, expected: String, got: String| Err(LearnError::Input { what, expected, got });
    let mut rows = Vec::with_capacity(rollouts.len());
    for rollout in rollouts {
        let Some(prompt) = drawn.prompts.get(rollout.question) else {
            let expected = format!(
                "one of the {} questions of the last call of `sample`",
                drawn.prompts.len()
            );
            return wrong("rollout.question", expected, rollout.question.to_string());
        };
        let (tokens, log_probs) = (rollout.tokens.len(), rollout.log_probs.len());
        if tokens != log_probs {
            return wrong(
                "rollout",
                format!("as many log-probabilities as tokens, {tokens}"),
                log_probs.to_string(),
            );
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

/// The rollouts that belong to a pair: those with an advantage.
fn paired(rollouts: &[Rollout], advantages: &Advantages) -> (Vec<Rollout>, Advantages) {
    let taught = rollouts
        .iter()
        .zip(&advantages.values)
        .filter(|(_, values)| values.iter().any(|value| *value != 0.0));
    let (rollouts, values) =
        taught.map(|(rollout, values)| (rollout.clone(), values.clone())).unzip();
    (rollouts, Advantages { values, ..advantages.clone() })
}

impl Sampler for Policy {
    fn sample(
        &mut self,
        questions: &[Question],
        sampling: &Sampling,
        seed: u64,
    ) -> std::result::Result<Vec<Rollout>, PartError> {
        Ok(self.draw(questions, sampling, seed, &mut |_| ())?)
    }

    /// On a GPU while others are drawn; on the CPU they would take turns.
    fn sample_and_tell(
        &mut self,
        questions: &[Question],
        sampling: &Sampling,
        seed: u64,
        ended: &mut dyn FnMut(Vec<(usize, Rollout)>),
    ) -> std::result::Result<Vec<Rollout>, PartError> {
        Ok(self.draw(questions, sampling, seed, ended)?)
    }
}

impl Learner for Policy {
    /// The reference's log-probabilities, on a GPU; on the CPU they would take from the reward what
    /// they would save. A critic's values in any case. Nothing for DPO, whose pairs are not known
    /// before the reward.
    fn prepare(
        &mut self,
        rollouts: &[Rollout],
    ) -> std::result::Result<Option<Vec<Vec<f64>>>, PartError> {
        let is_worth_it =
            self.model.device().is_cuda() && self.settings.algorithm != Algorithm::Dpo;
        if self.critic.is_none() && !is_worth_it {
            return Ok(None);
        }
        let prepared = Policy::prepare(self, rollouts)?;
        let values = prepared.values.clone();
        self.prepared = Some(prepared);
        Ok(values)
    }

    /// The rollouts must be those of the last call of [`Sampler::sample`], or some of them.
    fn update(
        &mut self,
        rollouts: &[Rollout],
        advantages: &Advantages,
    ) -> std::result::Result<UpdateReport, PartError> {
        Ok(self.learn(rollouts, advantages)?)
    }
}

impl Trainee for Policy {
    fn set_system_prompt(&mut self, prompt: &str) {
        self.dialogue.set_system_prompt(prompt);
    }

    fn save(&mut self, folder: &Path, keep: usize) -> std::result::Result<(), PartError> {
        self.save_checkpoint(folder, keep)?;
        Ok(())
    }
}

//! The policy: samples completions, and learns from their advantages.

mod checkpoint;
mod imitation;
mod learn;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use corver_core::{
    Algorithm, BoxError, Compatibility, Decoding, LearnSettings, Question, Rollout, Sampler,
    Sampling,
};
use corver_pretrained::{ChatTokenizer, Dialogue};
use corver_settings::AdapterPrecision;
use tch::Kind;

use crate::critic::Critic;
use crate::error::Result;
use crate::files;
use crate::memory::{Peak, log_peak};
use crate::model::Model;
use crate::optimizer::AdamW;
use crate::sample::{MAX_ROWS, SampleHooks, Watch, sample_with};
use crate::schedule::CosineSchedule;
use crate::update::PreparedUpdate;

pub use checkpoint::checkpoints;

/// A model with adapters, its tokenizer, and the state of its training.
pub struct Policy {
    model: Model,
    dialogue: Dialogue,
    settings: LearnSettings,
    optimizer: AdamW,
    schedule: CosineSchedule,
    /// PPO's critic; `None` for other algorithms.
    critic: Option<Critic>,
    /// Tensors of the next update, if they were computed in advance.
    prepared: Option<PreparedUpdate>,
    max_rows: usize,
    max_prompts: usize,
    /// Tokens of a pass of the next update: those of the settings until memory runs out.
    micro_batch_tokens: usize,
    /// Folder for batches whose loss or gradient is not finite; `None`: they are not written.
    failure_folder: Option<PathBuf>,
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
    /// Creates a policy without system prompt. Adds adapters drawn from `seed` if `model` has none.
    ///
    /// # Errors
    /// Fails if a setting is out of range, the tokenizer has ids beyond the model's embedding, or
    /// the device has no memory.
    pub fn new(
        mut model: Model,
        tokenizer: ChatTokenizer,
        settings: LearnSettings,
        seed: u64,
    ) -> Result<Self> {
        if let Some(problem) = corver_settings::check("update", &settings).into_iter().next() {
            return Err(problem.into());
        }
        tokenizer.check_vocabulary(model.config().vocab_size)?;
        if model.lora().is_none() {
            model.add_lora(&settings.lora, seed)?;
        }
        let parameters =
            model.lora_parameters().into_iter().map(|(_, tensor)| tensor.shallow_clone()).collect();
        let optimizer = AdamW::new(parameters, settings.optimizer)?;
        let updates = settings.total_steps * settings.updates_per_step();
        let schedule = CosineSchedule::new(settings.learning_rate, updates, settings.warmup_ratio);
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
            max_prompts: MAX_ROWS,
            micro_batch_tokens: settings.micro_batch_tokens,
            failure_folder: None,
            watch: Box::new(|_| ControlFlow::Continue(())),
        })
    }

    /// Sets how token spans are computed: exactly, or as in the published code, which decodes every
    /// token alone and adds up the lengths.
    #[must_use]
    pub fn with_compatibility(self, compatibility: Compatibility) -> Self {
        Self { dialogue: self.dialogue.with_compatibility(compatibility), ..self }
    }

    /// Limits the rows that are decoded together. The rows of one question always are.
    #[must_use]
    pub fn with_max_rows(mut self, max_rows: usize) -> Self {
        self.max_rows = max_rows;
        self
    }

    /// Limits the prompts whose rows are decoded together, for calls with few rows per prompt.
    #[must_use]
    pub fn with_max_prompts(mut self, max_prompts: usize) -> Self {
        self.max_prompts = max_prompts;
        self
    }

    /// Makes updates write their batch into `folder` if the loss or a gradient is not finite.
    pub fn dump_failed_batches_to(&mut self, folder: &Path) {
        self.failure_folder = Some(folder.to_owned());
    }

    /// Sets a callback that sampling calls every few tokens and that can stop it
    /// ([`crate::LearnError::Stopped`]).
    pub fn set_watch(&mut self, watch: impl FnMut(Decoding) -> ControlFlow<()> + 'static) {
        self.watch = Box::new(watch);
    }

    /// Makes a copy of the adapters the reference, instead of the base model. A run that starts
    /// from a trained adapter needs this.
    ///
    /// # Errors
    /// Fails if the device has no room for another adapter.
    pub fn freeze_as_reference(mut self) -> Result<Self> {
        self.model.freeze_as_reference()?;
        Ok(self)
    }

    /// Turns the adapters on or off, and returns their previous state. Without them the base model
    /// samples.
    pub fn set_adapters(&mut self, on: bool) -> bool {
        self.model.set_adapters(on)
    }

    /// Returns the model with its adapters.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Returns the tokenizer of prompts and completions.
    #[must_use]
    pub fn tokenizer(&self) -> &ChatTokenizer {
        self.dialogue.tokenizer()
    }

    /// Returns the settings of the updates.
    #[must_use]
    pub fn settings(&self) -> &LearnSettings {
        &self.settings
    }

    /// Returns the number of finished training steps.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.optimizer.steps() / self.settings.updates_per_step()
    }

    /// Checks that the prompts of these questions are not too long.
    ///
    /// # Errors
    /// Fails with the first question that is too long, or as [`ChatTokenizer::prompt`].
    pub fn check_prompts(&self, questions: &[Question], sampling: &Sampling) -> Result<()> {
        self.prompts(questions, sampling).map(drop)
    }

    /// Returns the token ids of every question's prompt, each with room for a completion.
    fn prompts(&self, questions: &[Question], sampling: &Sampling) -> Result<Vec<Vec<u32>>> {
        let max_positions = self.model.config().max_positions;
        let taker = "the model";
        let origin = "max_position_embeddings";
        Ok(self.dialogue.prompts_with_room(questions, sampling, max_positions, taker, origin)?)
    }

    fn sample_rollouts(
        &mut self,
        questions: &[Question],
        sampling: &Sampling,
        seed: u64,
        on_finished: &mut dyn FnMut(usize, &Rollout),
    ) -> Result<Vec<Rollout>> {
        self.prepared = None;
        let prompts = self.prompts(questions, sampling)?;
        let prompt_slices: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
        // On the CPU extraction would compete with sampling for the cores, so rollouts are passed
        // on when all are finished.
        let reports_early = self.model.device().is_cuda();
        let mut rollouts: Vec<Option<Rollout>> =
            vec![None; prompts.len() * sampling.num_generations];
        let dialogue = &self.dialogue;
        let hooks = SampleHooks {
            max_rows: self.max_rows,
            max_prompts: self.max_prompts,
            is_finished: &|tokens| Ok(dialogue.tokenizer().ends(tokens)?),
            watch: &mut *self.watch,
            on_finished: &mut |index, completion| {
                let rollout = dialogue.rollout(
                    index / sampling.num_generations,
                    completion.tokens,
                    completion.log_probs,
                    completion.finished,
                )?;
                if reports_early {
                    on_finished(index, &rollout);
                }
                rollouts[index] = Some(rollout);
                Ok(())
            },
        };
        let peak = Peak::begin(self.model.device());
        sample_with(hooks, &self.model, &prompt_slices, sampling, seed)?;
        log_peak("rollout", peak);
        let rollouts: Vec<Rollout> = rollouts.into_iter().flatten().collect();
        if !reports_early {
            for (index, rollout) in rollouts.iter().enumerate() {
                on_finished(index, rollout);
            }
        }
        Ok(rollouts)
    }

    /// Writes the adapter alone, in PEFT's layout and this precision. The folder appears only when
    /// it is complete.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub fn save_adapter(&self, folder: &Path, precision: AdapterPrecision) -> Result<()> {
        let kind = match precision {
            AdapterPrecision::F32 => Kind::Float,
            AdapterPrecision::Bf16 => Kind::BFloat16,
        };
        let new = files::create_folder(folder)?;
        self.model.save_adapter_in(new.path(), kind)?;
        files::finish_folder(new, folder)
    }
}

impl Sampler for Policy {
    fn sample(
        &mut self,
        questions: &[Question],
        sampling: &Sampling,
        seed: u64,
        on_finished: &mut dyn FnMut(usize, &Rollout),
    ) -> std::result::Result<Vec<Rollout>, BoxError> {
        Ok(self.sample_rollouts(questions, sampling, seed, on_finished)?)
    }
}

//! A server as a sampler.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use corver_core::{BoxError, Decoding, Question, Rollout, Sampler, Sampling};
use corver_http::RetryPolicy;
use corver_pretrained::Dialogue;

use crate::adapters::{AdapterFolder, Adapters};
use crate::batch::sample_all;
use crate::error::{EngineError, Result};
use crate::probe::{LogProbKind, detect_log_probs};
use crate::request::{EngineCompletion, SampleRequest, StopCondition, request_seed};
use crate::server::{EngineServer, unexpected};
use crate::settings::EngineSettings;

/// Limits of a model, from its configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelShape {
    /// Rows of the embedding; every token id is below it.
    pub vocab_size: usize,
    /// Most tokens of prompt and completion together.
    pub max_positions: usize,
}

/// Callback during sampling; `Break` stops it.
type Watch = dyn FnMut(Decoding) -> ControlFlow<()>;

/// A server that samples from its base model, or from the adapter that was published last.
pub struct Engine {
    server: EngineServer,
    model: String,
    concurrency: usize,
    dialogue: Dialogue,
    shape: ModelShape,
    log_probs: LogProbKind,
    adapters: Option<Adapters>,
    watch: Box<Watch>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("server", &self.server)
            .field("adapters", &self.adapters)
            .finish_non_exhaustive()
    }
}

/// Destination of the rollouts of a sampling call.
struct RolloutSink<'a> {
    /// Rollouts of each question; `None` until they arrive.
    groups: Vec<Option<Vec<Rollout>>>,
    on_finished: &'a mut dyn FnMut(usize, &Rollout),
}

impl Engine {
    /// Connects to the server, and checks its model and its log-probabilities.
    ///
    /// `dialogue` renders prompts and reads completions. `shape` is that of the model whose
    /// tokenizer it has.
    ///
    /// # Errors
    /// Fails if the server does not respond, serves another model, or returns no token ids or
    /// log-probabilities.
    pub fn open(settings: &EngineSettings, dialogue: Dialogue, shape: ModelShape) -> Result<Self> {
        let server = EngineServer::new(settings)?;
        let model = settings.model.clone();
        // Without retries: the user who starts the run can start the server.
        let served = server.models(&RetryPolicy::new(Duration::ZERO, None))?;
        let Some(base) = served.iter().find(|served| served.id == model) else {
            return Err(server.no_model(&model, &served));
        };
        let max_positions =
            base.max_model_len.map_or(shape.max_positions, |len| len.min(shape.max_positions));
        let question =
            Question { question: "Who?".into(), golds: Vec::new(), ..Question::default() };
        let prompt = dialogue.prompts(&[question], &Sampling::greedy(1))?.remove(0);
        let log_probs = detect_log_probs(&server, &model, &prompt)?;
        tracing::info!(url = server.url(), model, ?log_probs, max_positions, "found the engine");
        Ok(Self {
            server,
            model,
            concurrency: settings.concurrency,
            dialogue,
            shape: ModelShape { max_positions, ..shape },
            log_probs,
            adapters: None,
            watch: Box::new(|_| ControlFlow::Continue(())),
        })
    }

    /// Checks that the prompts of these questions are not too long.
    ///
    /// # Errors
    /// Fails with the first question that is too long, or as [`Dialogue::prompts`].
    pub fn check_prompts(&self, questions: &[Question], sampling: &Sampling) -> Result<()> {
        self.prompts(questions, sampling).map(drop)
    }

    /// Checks that an update can use the log-probabilities of rollouts that are sampled at this
    /// temperature.
    ///
    /// # Errors
    /// Fails if the server returns log-probabilities of another temperature.
    pub fn check_log_probs(&self, temperature: f64) -> Result<()> {
        if self.log_probs.fits(temperature) {
            return Ok(());
        }
        Err(EngineError::Unusable(format!(
            "the engine {} returns log-probabilities of temperature 1, and rollout.temperature is \
             {temperature}: start vLLM with --logprobs-mode processed_logprobs (SGLang without \
             SGLANG_RETURN_ORIGINAL_LOGPROB)",
            self.server.url()
        )))
    }

    /// Claims a folder for the adapters of a run.
    ///
    /// # Errors
    /// Fails if another process uses the folder, or it cannot be written.
    pub fn claim_adapter_folder(&mut self, folder: AdapterFolder) -> Result<()> {
        self.adapters = Some(Adapters::open(folder, &self.server)?);
        Ok(())
    }

    /// Makes the server sample with a new adapter, which `write` puts into a folder in PEFT's
    /// layout. The previous adapter is unloaded and its folder deleted.
    ///
    /// # Errors
    /// Fails if the adapter cannot be written, the server does not load it, or there is no folder
    /// of [`Self::claim_adapter_folder`].
    pub fn publish(
        &mut self,
        write: impl FnOnce(&Path) -> std::result::Result<(), BoxError>,
    ) -> Result<()> {
        match &mut self.adapters {
            Some(adapters) => adapters.publish(&self.server, write),
            None => Err(EngineError::InvalidSettings(
                "no folder was claimed for the adapters of the engine".to_owned(),
            )),
        }
    }

    /// Returns the server's name of the current adapter; `None` if the base model samples.
    #[must_use]
    pub fn adapter(&self) -> Option<&str> {
        self.adapters.as_ref()?.current()
    }

    /// Sets the system prompt of all questions; an empty one sends none.
    pub fn set_system_prompt(&mut self, prompt: &str) {
        self.dialogue.set_system_prompt(prompt);
    }

    /// Sets a callback that sampling calls several times a second and that can stop it
    /// ([`EngineError::Stopped`]). Requests in flight are finished first.
    pub fn set_watch(&mut self, watch: impl FnMut(Decoding) -> ControlFlow<()> + 'static) {
        self.watch = Box::new(watch);
    }

    fn sample_rollouts(
        &mut self,
        questions: &[Question],
        sampling: &Sampling,
        seed: u64,
        on_finished: &mut dyn FnMut(usize, &Rollout),
    ) -> Result<Vec<Rollout>> {
        let prompts = self.prompts(questions, sampling)?;
        let mut sink = RolloutSink { groups: vec![None; questions.len()], on_finished };
        match self.sample_missing(&prompts, sampling, seed, &mut sink) {
            // The server was restarted and has lost the adapter. The second call loads it again,
            // and fails if the server loses it once more.
            Err(EngineError::NoModel(_)) if self.adapters.is_some() => {
                self.sample_missing(&prompts, sampling, seed, &mut sink)?;
            }
            result => result?,
        }
        Ok(sink.groups.into_iter().flatten().flatten().collect())
    }

    /// Samples the groups that have not arrived yet.
    fn sample_missing(
        &mut self,
        prompts: &[Vec<u32>],
        sampling: &Sampling,
        seed: u64,
        sink: &mut RolloutSink<'_>,
    ) -> Result<()> {
        let Self { server, dialogue, shape, watch, .. } = self;
        let model = match &self.adapters {
            Some(adapters) => {
                adapters.ensure_loaded(server)?;
                adapters.current().unwrap_or(&self.model)
            }
            None => &self.model,
        };
        let tokenizer = dialogue.tokenizer();
        let group = sampling.num_generations;
        let mut requests = Vec::new();
        for (question, prompt) in prompts.iter().enumerate() {
            if sink.groups[question].is_some() {
                continue;
            }
            let request = SampleRequest {
                model,
                prompt,
                // Greedy completions are equal, and vLLM refuses to sample several.
                number: if sampling.temperature == 0.0 { 1 } else { group },
                max_tokens: sampling.max_completion_length.min(shape.max_positions - prompt.len()),
                sampling,
                stop: StopCondition {
                    tokens: tokenizer.stop_tokens(),
                    texts: tokenizer.stop_texts(),
                },
                seed: request_seed(seed, question),
                alternatives: 0,
            };
            requests.push((question, request));
        }
        let rows = prompts.len() * group;
        let limit = sampling.max_completion_length;
        let ended_rows = Cell::new(rows - requests.len() * group);
        sample_all(
            server,
            requests,
            self.concurrency,
            &mut || watch(Decoding { tokens: None, limit, ended: ended_rows.get(), rows }),
            &mut |question, completions| {
                let rollouts = rollouts(dialogue, question, completions, group)?;
                check_ids(server, shape.vocab_size, &rollouts)?;
                for (n, rollout) in rollouts.iter().enumerate() {
                    (sink.on_finished)(question * group + n, rollout);
                }
                ended_rows.set(ended_rows.get() + group);
                sink.groups[question] = Some(rollouts);
                Ok(())
            },
        )
    }

    /// Returns the token ids of every question's prompt, each with room for a completion.
    fn prompts(&self, questions: &[Question], sampling: &Sampling) -> Result<Vec<Vec<u32>>> {
        let max_positions = self.shape.max_positions;
        let taker = format!("the engine {}", self.server.url());
        let origin = "--max-model-len, max_position_embeddings";
        Ok(self.dialogue.prompts_with_room(questions, sampling, max_positions, &taker, origin)?)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(adapters) = &mut self.adapters {
            adapters.close(&self.server);
        }
    }
}

impl Sampler for Engine {
    /// Samples with concurrent requests. `on_finished` receives the group of a question as soon as
    /// it arrives.
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

/// Turns the completions of a question into its group. A single greedy completion is repeated.
fn rollouts(
    dialogue: &Dialogue,
    question: usize,
    completions: Vec<EngineCompletion>,
    group: usize,
) -> Result<Vec<Rollout>> {
    let mut rollouts = Vec::with_capacity(completions.len());
    for EngineCompletion { tokens, log_probs, finished, .. } in completions {
        // A stop token may be the last one that fits; the server then reports the length limit.
        let ends = finished || dialogue.tokenizer().ends(&tokens)?;
        rollouts.push(dialogue.rollout(question, tokens, log_probs, ends)?);
    }
    Ok(rollouts.into_iter().cycle().take(group).collect())
}

/// Checks that the model has every token of the rollouts.
fn check_ids(server: &EngineServer, vocab_size: usize, rollouts: &[Rollout]) -> Result<()> {
    for rollout in rollouts {
        if let Some(id) = rollout.tokens.iter().find(|&&id| id as usize >= vocab_size) {
            let problem = format!(
                "the token {id}, where policy.model has {vocab_size}: it serves another model"
            );
            return Err(unexpected(server.url(), &problem));
        }
    }
    Ok(())
}

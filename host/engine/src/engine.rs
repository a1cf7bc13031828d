//! A server as something to sample from.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use corver_core::{BoxError, Decoding, Question, Rollout, Sampler, Sampling};
use corver_http::Patience;
use corver_pretrained::{Dialogue, PretrainedError};

use crate::adapters::{AdapterPlace, Adapters};
use crate::batch::draw_all;
use crate::draw::{Completion, Draw, Stop, seed_of_request};
use crate::error::{EngineError, Result};
use crate::probe::{self, LogProbs};
use crate::server::{Server, unexpected};
use crate::settings::EngineSettings;

/// What a model's configuration says of its ids and lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelShape {
    /// Rows of the embedding.
    pub vocab_size: usize,
    /// Tokens of prompt and completion together.
    pub max_positions: usize,
}

/// Asked again and again while completions are drawn: whether to go on.
type Watch = dyn FnMut(Decoding) -> ControlFlow<()>;

/// A server that draws completions, of its base model or of the adapter that was published last.
pub struct Engine {
    server: Server,
    model: String,
    concurrency: usize,
    dialogue: Dialogue,
    shape: ModelShape,
    log_probs: LogProbs,
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

impl Engine {
    /// Finds the server, and finds out what it serves and which log-probabilities it gives.
    /// `dialogue` makes prompts and reads completions; `shape` is that of the model whose tokenizer
    /// it has.
    ///
    /// # Errors
    /// A server that is away, serves another model, or gives no token ids or log-probabilities.
    pub fn open(settings: &EngineSettings, dialogue: Dialogue, shape: ModelShape) -> Result<Self> {
        let server = Server::new(settings)?;
        let model = settings.model.clone();
        // At the start nobody waits: whoever started the run is there to start the server.
        let served = server.models(&Patience::new(Duration::ZERO, None))?;
        let Some(base) = served.iter().find(|served| served.id == model) else {
            return Err(server.no_model(&model, &served));
        };
        let max_positions =
            base.max_model_len.map_or(shape.max_positions, |most| most.min(shape.max_positions));
        let question =
            Question { question: "Who?".into(), golds: Vec::new(), ..Question::default() };
        let prompt = dialogue.prompts(&[question], &Sampling::greedy(1))?.remove(0);
        let log_probs = probe::log_probs(&server, &model, &prompt)?;
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

    /// See [`Dialogue::check_prompts`].
    ///
    /// # Errors
    /// As there.
    pub fn check_prompts(&self, questions: &[Question], sampling: &Sampling) -> Result<()> {
        Ok(self.dialogue.check_prompts(questions, sampling)?)
    }

    /// Claims a folder for the adapters of a run.
    ///
    /// # Errors
    /// A folder that another process uses, or that cannot be written.
    pub fn publish_into(&mut self, place: AdapterPlace) -> Result<()> {
        self.adapters = Some(Adapters::open(place, &self.server)?);
        Ok(())
    }

    /// From now on completions are drawn with the adapter that `write` puts into a folder, in
    /// PEFT's layout; the version before it is unloaded and its folder deleted.
    ///
    /// # Errors
    /// An adapter that cannot be written, or that the server does not load; no folder of
    /// [`Self::publish_into`].
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

    /// The adapter that completions are drawn with, by the server's name for it.
    #[must_use]
    pub fn adapter(&self) -> Option<&str> {
        self.adapters.as_ref()?.current()
    }

    /// From now on questions are put under this system prompt; an empty one sends none.
    pub fn set_system_prompt(&mut self, prompt: &str) {
        self.dialogue.set_system_prompt(prompt);
    }

    /// From now on `watch` hears of every sampling several times a second, and can break it off
    /// ([`EngineError::Stopped`]) as soon as the requests that are under way have ended.
    pub fn set_watch(&mut self, watch: impl FnMut(Decoding) -> ControlFlow<()> + 'static) {
        self.watch = Box::new(watch);
    }

    fn sample_groups(
        &mut self,
        questions: &[Question],
        sampling: &Sampling,
        seed: u64,
        on_finished: &mut dyn FnMut(usize, &Rollout),
    ) -> Result<Vec<Rollout>> {
        if !self.log_probs.fit(sampling.temperature) {
            return Err(EngineError::Unusable(format!(
                "the engine {} gives log-probabilities of temperature 1, and rollout.temperature \
                 is {}: start vLLM with --logprobs-mode processed_logprobs (SGLang without \
                 SGLANG_RETURN_ORIGINAL_LOGPROB)",
                self.server.url(),
                sampling.temperature
            )));
        }
        let prompts = self.dialogue.prompts(questions, sampling)?;
        self.check_room(questions, &prompts)?;
        let mut groups = vec![None; questions.len()];
        match self.draw_missing(&prompts, sampling, seed, &mut groups, on_finished) {
            // The server was started anew meanwhile; once is enough to find that out.
            Err(EngineError::NoModel(_)) if self.adapters.is_some() => {
                self.draw_missing(&prompts, sampling, seed, &mut groups, on_finished)?;
            }
            drawn => drawn?,
        }
        Ok(groups.into_iter().flatten().flatten().collect())
    }

    /// Draws the groups that are not there yet, and hands each to `on_finished` as it arrives.
    fn draw_missing(
        &mut self,
        prompts: &[Vec<u32>],
        sampling: &Sampling,
        seed: u64,
        groups: &mut [Option<Vec<Rollout>>],
        on_finished: &mut dyn FnMut(usize, &Rollout),
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
        let draw = |question: usize| Draw {
            model,
            prompt: &prompts[question],
            // Greedy completions are one and the same, and vLLM refuses to draw several.
            number: if sampling.temperature == 0.0 { 1 } else { group },
            max_tokens: sampling
                .max_completion_length
                .min(shape.max_positions - prompts[question].len()),
            sampling,
            stop: Stop { tokens: tokenizer.stop_tokens(), texts: tokenizer.stop_texts() },
            seed: seed_of_request(seed, question),
            alternatives: 0,
        };
        let missing = (0..groups.len()).filter(|&question| groups[question].is_none());
        let draws: Vec<(usize, Draw<'_>)> =
            missing.map(|question| (question, draw(question))).collect();
        let (rows, limit) = (groups.len() * group, sampling.max_completion_length);
        let ended_rows = Cell::new(rows - draws.len() * group);
        let mut look = || watch(Decoding { tokens: None, limit, ended: ended_rows.get(), rows });
        draw_all(server, draws, self.concurrency, &mut look, &mut |question, completions| {
            let rollouts = rollouts(dialogue, question, completions, group)
                .and_then(|rollouts| check_ids(server, shape.vocab_size, rollouts))?;
            for (n, rollout) in rollouts.iter().enumerate() {
                on_finished(question * group + n, rollout);
            }
            ended_rows.set(ended_rows.get() + group);
            groups[question] = Some(rollouts);
            Ok(())
        })
    }

    /// That a token fits behind every prompt.
    fn check_room(&self, questions: &[Question], prompts: &[Vec<u32>]) -> Result<()> {
        let most = self.shape.max_positions;
        match questions.iter().zip(prompts).find(|(_, prompt)| prompt.len() >= most) {
            None => Ok(()),
            Some((question, prompt)) => Err(PretrainedError::InvalidInput(format!(
                "the prompt of {:?} has {} tokens; the engine {} takes {most}, completion included \
                 (--max-model-len)",
                question.question,
                prompt.len(),
                self.server.url()
            ))
            .into()),
        }
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
    /// Hands over the group of a question as soon as it has arrived, while others are drawn.
    fn sample(
        &mut self,
        questions: &[Question],
        sampling: &Sampling,
        seed: u64,
        on_finished: &mut dyn FnMut(usize, &Rollout),
    ) -> std::result::Result<Vec<Rollout>, BoxError> {
        Ok(self.sample_groups(questions, sampling, seed, on_finished)?)
    }
}

/// A question's group; the one completion of a greedy sampling stands for all.
fn rollouts(
    dialogue: &Dialogue,
    question: usize,
    completions: Vec<Completion>,
    group: usize,
) -> Result<Vec<Rollout>> {
    let rollout = |Completion { tokens, log_probs, finished, .. }| {
        // A stop token may be the last one that fits.
        let finished = finished || dialogue.tokenizer().ends(&tokens)?;
        Ok(dialogue.rollout(question, tokens, log_probs, finished)?)
    };
    let rollouts = completions.into_iter().map(rollout).collect::<Result<Vec<_>>>()?;
    Ok(rollouts.into_iter().cycle().take(group).collect())
}

/// That the model has every token of the rollouts.
fn check_ids(server: &Server, vocab_size: usize, rollouts: Vec<Rollout>) -> Result<Vec<Rollout>> {
    match rollouts.iter().flat_map(|rollout| &rollout.tokens).find(|&&id| id as usize >= vocab_size)
    {
        None => Ok(rollouts),
        Some(id) => Err(unexpected(
            server.url(),
            &format!(
                "the token {id}, where policy.model has {vocab_size}: it serves another model"
            ),
        )),
    }
}

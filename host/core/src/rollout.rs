//! Stage 2: question → rollouts. G sampled completions for each prompt.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{PartError, Question};

/// One sampled completion.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rollout {
    /// Index of its question in the step.
    pub question: usize,
    /// `[T]` token ids; what ended it is the last of them.
    pub tokens: Vec<u32>,
    /// `[T]` nats, under the policy and temperature that sampled them.
    pub log_probs: Vec<f32>,
    /// The tokens decoded together, special tokens skipped.
    pub text: String,
    /// `[T]` the characters of `text` that each token stands for; `None` for a special token that `text` leaves out.
    pub token_spans: Vec<Option<Range<usize>>>,
    /// Ended by a stop token or a stop text; `false` where the length limit cut it off.
    pub finished: bool,
}

impl Rollout {
    /// A text whose tokens are unknown: each character stands for one.
    #[must_use]
    pub fn of_text(question: usize, text: String) -> Self {
        let token_spans = (0..text.chars().count()).map(|at| Some(at..at + 1)).collect();
        Self { question, tokens: Vec::new(), log_probs: Vec::new(), text, token_spans, finished: true }
    }
}

/// How to draw completions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sampling {
    /// G, completions per prompt.
    pub num_generations: usize,
    /// Tokens; longer completions are cut off.
    pub max_completion_length: usize,
    /// 0 decodes greedily.
    pub temperature: f64,
    /// Nucleus mass; 1 keeps every token.
    pub top_p: f64,
    /// Most probable tokens kept; 0 keeps every token.
    pub top_k: usize,
    /// Tokens of a prompt, with what the chat template adds; 0 sets no bound.
    pub max_prompt_length: usize,
    /// What becomes of longer ones.
    pub long_prompts: LongPrompts,
}

/// What becomes of a prompt that is longer than [`Sampling::max_prompt_length`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LongPrompts {
    /// It is an error that names the question.
    #[default]
    Refuse,
    /// Its first tokens are left out, as TRL does; the first question to lose some is named in a warning.
    Cut,
}

impl Default for Sampling {
    fn default() -> Self {
        Self::PAPER
    }
}

impl Sampling {
    /// The paper's rollouts (App. hyper-parameters).
    pub const PAPER: Self = Self {
        num_generations: 16,
        max_completion_length: 1024,
        temperature: 1.0,
        top_p: 1.0,
        top_k: 0,
        max_prompt_length: 256,
        long_prompts: LongPrompts::Refuse,
    };

    /// One most probable completion per prompt, of any length.
    #[must_use]
    pub fn greedy(max_completion_length: usize) -> Self {
        Self { num_generations: 1, max_completion_length, temperature: 0.0, max_prompt_length: 0, ..Self::default() }
    }
}

/// How far the decoding of rollouts has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decoding {
    /// Tokens of the rows that have not ended; `None` where a server decodes, which does not tell.
    pub tokens: Option<usize>,
    /// Tokens that a row can have.
    pub limit: usize,
    /// Rows that have ended.
    pub ended: usize,
    /// Rows that are decoded together.
    pub rows: usize,
}

/// The policy, as something to draw from.
pub trait Sampler {
    /// `questions.len() × num_generations` rollouts, those of one question next to each other, in question order.
    /// `seed` decides every draw.
    ///
    /// # Errors
    /// Where a prompt cannot be rendered or the device fails.
    fn sample(&mut self, questions: &[Question], sampling: &Sampling, seed: u64) -> Result<Vec<Rollout>, PartError>;

    /// As [`Sampler::sample`]; hands every rollout to `ended` too, with its place among all of them. A sampler may do so while
    /// it draws others; one that does not hands all of them over at once.
    ///
    /// # Errors
    /// As [`Sampler::sample`].
    fn sample_and_tell(
        &mut self,
        questions: &[Question],
        sampling: &Sampling,
        seed: u64,
        ended: &mut dyn FnMut(Vec<(usize, Rollout)>),
    ) -> Result<Vec<Rollout>, PartError> {
        let rollouts = self.sample(questions, sampling, seed)?;
        ended(rollouts.iter().cloned().enumerate().collect());
        Ok(rollouts)
    }
}

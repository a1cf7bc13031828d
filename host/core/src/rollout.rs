//! Stage 2: question → rollouts. G sampled completions for each prompt.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{BoxError, Question, Sampling};

/// A completion as the sampler returns it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rollout {
    /// Index of the question in the step.
    pub question: usize,
    /// `[T]` token ids, including the stop token.
    pub tokens: Vec<u32>,
    /// `[T]` log-probabilities under the policy and temperature that sampled, nats.
    pub log_probs: Vec<f32>,
    /// Text of all tokens decoded together, without special tokens.
    pub text: String,
    /// `[T]` characters of `text` that each token covers. `None`: a special token, which `text`
    /// leaves out.
    pub token_spans: Vec<Option<Range<usize>>>,
    /// True if a stop token or a stop text ended it; false if the length limit did.
    pub finished: bool,
}

impl Rollout {
    /// Creates a rollout of a text whose tokens are not known: each character counts as a token.
    #[must_use]
    pub fn of_text(question: usize, text: String) -> Self {
        let token_spans = (0..text.chars().count()).map(|at| Some(at..at + 1)).collect();
        Self {
            question,
            tokens: Vec::new(),
            log_probs: Vec::new(),
            text,
            token_spans,
            finished: true,
        }
    }
}

/// Progress of the decoding of rollouts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decoding {
    /// Tokens of the rows that have not ended. `None`: an engine samples, which does not report them.
    pub tokens: Option<usize>,
    /// Most tokens of a row.
    pub limit: usize,
    /// Number of rows that have ended.
    pub ended: usize,
    /// Number of rows that are decoded together.
    pub rows: usize,
}

/// A policy that completions are drawn from.
pub trait Sampler {
    /// Returns `questions.len() × num_generations` rollouts, those of one question next to each
    /// other, in question order. `seed` decides every draw.
    ///
    /// Calls `on_finished` once for each rollout, with its index among all: as soon as the rollout
    /// ends if others can continue concurrently, or else after the last one.
    ///
    /// # Errors
    /// If a prompt cannot be rendered or the device fails.
    fn sample(
        &mut self,
        questions: &[Question],
        sampling: &Sampling,
        seed: u64,
        on_finished: &mut dyn FnMut(usize, &Rollout),
    ) -> Result<Vec<Rollout>, BoxError>;
}

//! Stage 2: question → rollouts. G sampled completions for each prompt.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{BoxError, Question, Sampling};

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
    /// `[T]` the characters of `text` that each token stands for; `None` for a special token that
    /// `text` leaves out.
    pub token_spans: Vec<Option<Range<usize>>>,
    /// Ended by a stop token or a stop text; `false` where the length limit cut it off.
    pub finished: bool,
}

impl Rollout {
    /// A text whose tokens are unknown: each character stands for one.
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

/// A policy that completions are drawn from.
pub trait Sampler {
    /// Returns `questions.len() × num_generations` rollouts, those of one question next to each
    /// other, in question order. `seed` decides every draw.
    ///
    /// `on_finished` gets each rollout once with its index among all: as soon as it has ended, if
    /// the sampler can go on with others meanwhile, or else at the end.
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

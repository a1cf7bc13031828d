//! The prompts of questions, and the rollouts of sampled tokens. Every sampler, libtorch or a server,
//! uses them, so that all get the same ids and their tokens are decoded in the same way.

use std::cell::OnceCell;

use corver_core::text::excerpt;
use corver_core::{Compatibility, LongPrompts, Question, Rollout, Sampling};

use crate::error::{PretrainedError, Result};
use crate::text::Decoded;
use crate::tokenizer::ChatTokenizer;

/// A policy's tokenizer with its system prompt.
#[derive(Debug)]
pub struct Dialogue {
    tokenizer: ChatTokenizer,
    system_prompt: Option<String>,
    compatibility: Compatibility,
    /// Set after the first warning about a cut prompt.
    cut_warning: OnceCell<()>,
}

impl Dialogue {
    /// Creates a dialogue without system prompt and with exact token spans.
    #[must_use]
    pub fn new(tokenizer: ChatTokenizer) -> Self {
        Self {
            tokenizer,
            system_prompt: None,
            compatibility: Compatibility::Paper,
            cut_warning: OnceCell::new(),
        }
    }

    /// Sets the system prompt of all questions; an empty one sends none.
    pub fn set_system_prompt(&mut self, prompt: &str) {
        self.system_prompt = (!prompt.is_empty()).then(|| prompt.to_owned());
    }

    /// Sets how token spans are computed: exactly, or as in the published code, which decodes every
    /// token alone and adds up the lengths.
    #[must_use]
    pub fn with_compatibility(self, compatibility: Compatibility) -> Self {
        Self { compatibility, ..self }
    }

    /// Returns the tokenizer of prompts and completions.
    #[must_use]
    pub fn tokenizer(&self) -> &ChatTokenizer {
        &self.tokenizer
    }

    /// Returns the token ids of every question's prompt, within [`Sampling::max_prompt_length`].
    ///
    /// # Errors
    /// Fails if a prompt is too long and must not be cut, or as [`ChatTokenizer::prompt`].
    pub fn prompts(&self, questions: &[Question], sampling: &Sampling) -> Result<Vec<Vec<u32>>> {
        questions.iter().map(|question| self.prompt(&question.question, sampling)).collect()
    }

    /// Returns the prompts as [`Self::prompts`] does, each with room for a completion. `taker` takes
    /// up to `max_positions` tokens, prompt and completion together; `origin` names what sets them.
    ///
    /// # Errors
    /// Fails with the first prompt that leaves no room, or as [`Self::prompts`].
    pub fn prompts_with_room(
        &self,
        questions: &[Question],
        sampling: &Sampling,
        max_positions: usize,
        taker: &str,
        origin: &str,
    ) -> Result<Vec<Vec<u32>>> {
        let prompts = self.prompts(questions, sampling)?;
        for (question, prompt) in questions.iter().zip(&prompts) {
            if prompt.len() >= max_positions {
                return Err(PretrainedError::InvalidInput(format!(
                    "the prompt of {:?} has {} tokens; {taker} takes {max_positions}, completion \
                     included ({origin}). Shorten the question or the system prompt; a training \
                     run can also cut it, with rollout.max_prompt_length and \
                     rollout.long_prompts = \"truncate\"",
                    excerpt(&question.question),
                    prompt.len()
                )));
            }
        }
        Ok(prompts)
    }

    fn prompt(&self, question: &str, sampling: &Sampling) -> Result<Vec<u32>> {
        let mut prompt = self.tokenizer.prompt(self.system_prompt.as_deref(), question)?;
        let tokens = prompt.len();
        let limit = match sampling.max_prompt_length {
            Some(limit) if tokens > limit => limit,
            _ => return Ok(prompt),
        };
        let start = excerpt(question);
        if sampling.long_prompts == LongPrompts::Reject {
            return Err(PretrainedError::InvalidInput(format!(
                "the prompt of {start:?} has {tokens} tokens; rollout.max_prompt_length is \
                 {limit}. Raise it, shorten the system prompt, or set rollout.long_prompts = \
                 \"truncate\""
            )));
        }
        self.cut_warning.get_or_init(|| {
            tracing::warn!(question = start, tokens, limit, "prompts lose their first tokens")
        });
        prompt.drain(..tokens - limit);
        Ok(prompt)
    }

    /// Returns the token ids of a question's prompt, and of a completion with its stop token.
    ///
    /// # Errors
    /// Fails as [`ChatTokenizer::prompt`].
    pub fn demonstration(&self, question: &str, completion: &str) -> Result<(Vec<u32>, Vec<u32>)> {
        let mut tokens = self.tokenizer.encode(completion)?;
        if !self.tokenizer.ends(&tokens)? {
            tokens.push(self.tokenizer.end_token());
        }
        Ok((self.tokenizer.prompt(self.system_prompt.as_deref(), question)?, tokens))
    }

    /// Decodes sampled tokens into a rollout of question number `question`.
    ///
    /// # Errors
    /// Fails if the tokenizer's decoder fails.
    pub fn rollout(
        &self,
        question: usize,
        tokens: Vec<u32>,
        log_probs: Vec<f32>,
        finished: bool,
    ) -> Result<Rollout> {
        let Decoded { text, token_spans } =
            self.tokenizer.decode_as(&tokens, self.compatibility)?;
        Ok(Rollout { question, tokens, log_probs, text, token_spans, finished })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{byte_level_json, load};

    fn question(text: &str) -> Question {
        Question { question: text.into(), golds: Vec::new(), ..Question::default() }
    }

    #[test]
    fn long_prompt_is_rejected_or_truncated_at_start() {
        let mut dialogue = Dialogue::new(load(&byte_level_json()));
        dialogue.set_system_prompt("s");
        let whole = dialogue.prompts(&[question("u")], &Sampling::greedy(1)).unwrap().remove(0);
        assert_eq!(whole, dialogue.tokenizer().prompt(Some("s"), "u").unwrap());
        let bounded = Sampling { max_prompt_length: Some(whole.len() - 1), ..Sampling::greedy(1) };
        let error = dialogue.prompts(&[question("u")], &bounded).unwrap_err();
        let message = format!("the prompt of \"u\" has {} tokens; ", whole.len());
        assert!(error.to_string().starts_with(&message), "{error}");
        let cut = Sampling { long_prompts: LongPrompts::Truncate, ..bounded };
        assert_eq!(dialogue.prompts(&[question("u")], &cut).unwrap(), [&whole[1..]]);
    }

    #[test]
    fn prompt_without_room_for_completion_is_rejected() {
        let dialogue = Dialogue::new(load(&byte_level_json()));
        let questions = [question("u")];
        let sampling = Sampling::greedy(1);
        let whole = dialogue.prompts(&questions, &sampling).unwrap();
        let tokens = whole[0].len();
        let with_room = |max_positions| {
            dialogue.prompts_with_room(&questions, &sampling, max_positions, "the model", "here")
        };
        assert_eq!(with_room(tokens + 1).unwrap(), whole);
        let error = with_room(tokens).unwrap_err().to_string();
        let message = format!(
            "the prompt of \"u\" has {tokens} tokens; the model takes {tokens}, completion \
             included (here). Shorten the question or the system prompt"
        );
        assert!(error.starts_with(&message), "{error}");
    }

    #[test]
    fn demonstration_ends_with_stop_token() {
        let mut dialogue = Dialogue::new(load(&byte_level_json()));
        dialogue.set_system_prompt("s");
        let end = dialogue.tokenizer().id("<|im_end|>").unwrap();
        let (prompt, completion) = dialogue.demonstration("u", "ab").unwrap();
        assert_eq!(prompt, dialogue.tokenizer().prompt(Some("s"), "u").unwrap());
        assert_eq!(completion, [dialogue.tokenizer().encode("ab").unwrap(), vec![end]].concat());
        assert_eq!(
            dialogue.demonstration("u", "ab<|im_end|>").unwrap().1,
            completion,
            "it has its end already"
        );
        let stopping = load(&byte_level_json()).with_stop_texts(vec!["b".into()]).unwrap();
        let (_, completion) = Dialogue::new(stopping).demonstration("u", "ab").unwrap();
        assert!(!completion.contains(&end), "a stop text ends it too");
    }

    #[test]
    fn rollout_carries_text_and_token_spans() {
        let dialogue = Dialogue::new(load(&byte_level_json()));
        let end = dialogue.tokenizer().id("<|im_end|>").unwrap();
        let tokens = [dialogue.tokenizer().encode("ab").unwrap(), vec![end]].concat();
        let rollout = dialogue.rollout(3, tokens.clone(), vec![-0.5; 3], true).unwrap();
        assert_eq!((rollout.question, rollout.text.as_str(), rollout.finished), (3, "ab", true));
        assert_eq!(
            (rollout.tokens, rollout.token_spans),
            (tokens, vec![Some(0..1), Some(1..2), None])
        );
    }
}

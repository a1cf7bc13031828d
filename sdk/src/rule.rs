//! What a rule implements: [`SentenceRule`] where a sentence stands for itself, [`CompletionRule`] where its neighbours
//! matter.

use crate::{Corpus, Outcome, Sentence, Settings};

/// A reward for single sentences. The implementing type holds the rule's settings; [`crate::settings!`] declares it.
pub trait SentenceRule: Settings {
    /// Judges one sentence. Called again with more counts until it no longer asks; each call must decide from its
    /// arguments alone.
    ///
    /// # Errors
    /// [`crate::Ask`] where `corpus` does not hold a count yet; `?` passes it on.
    fn score(&self, sentence: &Sentence, corpus: &Corpus) -> Outcome;

    /// Refuses settings that do not make sense, beyond what their types say. Called once, before anything is judged.
    ///
    /// # Errors
    /// A message that names the setting.
    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A reward for the sentences of a completion in the light of each other. Every [`SentenceRule`] is one.
pub trait CompletionRule: Settings {
    /// Judges a whole completion: one outcome per sentence, in order. [`Sentence::corpus`] has the counts of each. Called
    /// again, with the whole completion, until no outcome asks; each call must decide from its arguments alone.
    fn judge(&self, completion: &[Sentence]) -> Vec<Outcome>;

    /// As [`SentenceRule::validate`].
    ///
    /// # Errors
    /// A message that names the setting.
    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

impl<R: SentenceRule> CompletionRule for R {
    fn judge(&self, completion: &[Sentence]) -> Vec<Outcome> {
        completion.iter().map(|sentence| self.score(sentence, &sentence.corpus())).collect()
    }

    fn validate(&self) -> Result<(), String> {
        SentenceRule::validate(self)
    }
}

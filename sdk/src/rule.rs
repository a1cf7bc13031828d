//! What a rule implements: [`SentenceRule`] where a sentence stands for itself, [`CompletionRule`]
//! where its neighbours matter.

use crate::{Completion, Corpus, Outcome, Sentence, Settings, Verifier};

/// A reward for single sentences. The implementing type holds the rule's settings;
/// [`crate::settings!`] declares it.
///
/// One that asks more than counts:
///
/// ```
/// use corver_sdk::prelude::*;
///
/// settings! {
///     /// Labels a sentence right where the corpus has a passage that entails it, else wrong.
///     pub struct Entailed {
///         /// From this probability on, a passage entails the sentence.
///         pub threshold: f64 = 0.5,
///     }
/// }
///
/// impl SentenceRule for Entailed {
///     const ASKS: &'static [Verifier] = &[Verifier::Passages, Verifier::Nli];
///
///     fn score(&self, sentence: &Sentence, corpus: &Corpus) -> Outcome {
///         let search = Search { title: None, query: sentence.text.clone(), k: 3 };
///         let found = corpus.passages([search])?.concat();
///         if found.is_empty() {
///             return abstain("no passage was found");
///         }
///         let pairs = found.iter().map(|passage| Pair::new(&passage.text, &sentence.text));
///         let answers = corpus.entailments(pairs)?;
///         label(answers.iter().any(|answer| f64::from(answer.entail) >= self.threshold))
///     }
/// }
///
/// corver_sdk::export!(Entailed);
/// # use corver_sdk::testing::{counts, run, sentence};
/// # let rome = sentence("Rome is old.", &[]);
/// # let found = counts(&[]).finds(None, "Rome is old.", &["Rome was founded long ago."]);
/// # let judged = run(&Entailed::default(), &rome, &found.entails("Rome was founded long ago.", "Rome is old.", 0.9));
/// # assert_eq!(judged.reward, Some(1.0));
/// ```
pub trait SentenceRule: Settings {
    /// What it asks beside counts. A run that does not grant all of it does not begin.
    const ASKS: &'static [Verifier] = &[];

    /// Whether it looks at sentences' triplets. Where no rule of a run does, nothing is extracted.
    const READS_TRIPLETS: bool = true;

    /// Judges one sentence. Called again with more answers until it no longer asks; each call must
    /// decide, and ask, from its arguments alone.
    ///
    /// # Errors
    /// [`crate::Ask`] where `corpus` does not hold an answer yet; `?` passes it on.
    fn score(&self, sentence: &Sentence, corpus: &Corpus) -> Outcome;

    /// Refuses settings that do not make sense, beyond what their types say. Called once, before
    /// anything is judged.
    ///
    /// # Errors
    /// A message that names the setting.
    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A reward for the sentences of a completion in the light of each other. Every [`SentenceRule`] is
/// one.
///
/// ```
/// use corver_sdk::prelude::*;
///
/// settings! {
///     /// As First, but a sentence that was there before earns nothing.
///     pub struct Fresh {
///         /// From the count to the reward.
///         pub tiers: Tiers = Tiers::default(),
///     }
/// }
///
/// impl CompletionRule for Fresh {
///     fn judge(&self, completion: &Completion, corpora: &[Corpus]) -> Vec<Outcome> {
///         let sentences = &completion.sentences;
///         let judge = |(place, (sentence, corpus)): (usize, (&Sentence, &Corpus))| {
///             if sentences[..place].iter().any(|earlier| earlier.text == sentence.text) {
///                 return abstain("said before");
///             }
///             first_fact(sentence, corpus, self.tiers.top(), |count| self.tiers.reward(Some(count)))
///         };
///         sentences.iter().zip(corpora).enumerate().map(judge).collect()
///     }
/// }
///
/// corver_sdk::export!(Fresh);
/// # use corver_sdk::testing::{completion, counts, run_completion};
/// # let rome = ("Rome is in Italy.", &[("Rome", "is in", "Italy")][..]);
/// # let judged = run_completion(&Fresh::default(), &completion(&[rome, rome]), &counts(&[("Rome AND Italy", 30)]));
/// # assert_eq!((judged[0].reward, judged[1].reward), (Some(0.1), None));
/// ```
pub trait CompletionRule: Settings {
    /// As [`SentenceRule::ASKS`].
    const ASKS: &'static [Verifier] = &[];

    /// As [`SentenceRule::READS_TRIPLETS`].
    const READS_TRIPLETS: bool = true;

    /// Judges a whole completion: one outcome per sentence, in order. Each sentence has a corpus of
    /// its own. Called again, with the whole completion, until no outcome asks; each call must
    /// decide, and ask, from its arguments alone.
    fn judge(&self, completion: &Completion, corpora: &[Corpus]) -> Vec<Outcome>;

    /// As [`SentenceRule::validate`].
    ///
    /// # Errors
    /// A message that names the setting.
    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

impl<R: SentenceRule> CompletionRule for R {
    const ASKS: &'static [Verifier] = <R as SentenceRule>::ASKS;
    const READS_TRIPLETS: bool = <R as SentenceRule>::READS_TRIPLETS;

    fn judge(&self, completion: &Completion, corpora: &[Corpus]) -> Vec<Outcome> {
        completion
            .sentences
            .iter()
            .zip(corpora)
            .map(|(sentence, corpus)| self.score(sentence, corpus))
            .collect()
    }

    fn validate(&self) -> Result<(), String> {
        SentenceRule::validate(self)
    }
}

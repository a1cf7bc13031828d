//! The traits of sentence rules: [`SentenceRule`] for one sentence at a time, [`CompletionRule`]
//! for the sentences of a completion together.

use crate::{Capability, Completion, Corpus, CreditKind, Pending, RuleSettings, Sentence, Verdict};

/// A reward for single sentences. The type that implements it holds the rule's settings;
/// [`crate::settings!`] declares it.
///
/// A rule that requests more than counts:
///
/// ```
/// use corver_sdk::prelude::*;
///
/// settings! {
///     /// Sets the sign of a sentence's advantages: positive if a passage of the corpus entails it.
///     pub struct Entailed {
///         /// Lowest probability at which a passage entails the sentence, 0 to 1.
///         pub threshold: f64 = 0.5,
///     }
/// }
///
/// impl SentenceRule for Entailed {
///     const REQUIRES: &'static [Capability] = &[Capability::Passages, Capability::Nli];
///     const CREDIT: CreditKind = CreditKind::AdvantageSign;
///
///     fn score(&self, sentence: &Sentence, corpus: &Corpus) -> Result<Verdict, Pending> {
///         let search = Search { title: None, query: sentence.text.clone(), k: 3 };
///         let passages = corpus.passages([search])?.concat();
///         if passages.is_empty() {
///             return Ok(Verdict::abstain("no passage was found"));
///         }
///         let pairs = passages.iter().map(|passage| NliPair::new(&passage.text, &sentence.text));
///         let entailments = corpus.entailments(pairs)?;
///         let is_right = entailments.iter().any(|nli| f64::from(nli.entail) >= self.threshold);
///         Ok(Verdict::advantage_sign(is_right))
///     }
/// }
///
/// corver_sdk::export!(Entailed);
/// # use corver_sdk::testing::{counts, run, sentence};
/// # let rome = sentence("Rome is old.", &[]);
/// # let found = counts(&[]).finds(None, "Rome is old.", &["Rome was founded long ago."]);
/// # let scored = run(&Entailed::default(), &rome, &found.entails("Rome was founded long ago.", "Rome is old.", 0.9));
/// # assert_eq!(scored.reward, Some(1.0));
/// ```
pub trait SentenceRule: RuleSettings {
    /// Capabilities that its requests need. A run that does not grant all of them does not start.
    const REQUIRES: &'static [Capability] = &[];

    /// True if the rule reads triplets. If no rule of a run does, nothing is extracted.
    const READS_TRIPLETS: bool = true;

    /// The credit of its verdicts. A run whose algorithm cannot use it does not start.
    const CREDIT: CreditKind = CreditKind::AllTokens;

    /// Scores one sentence. Runs again, from the start, whenever replies have arrived. It must
    /// depend on its arguments alone and send the same requests in the same order.
    ///
    /// # Errors
    /// [`Pending`] if `corpus` does not have a reply yet; `?` returns it.
    fn score(&self, sentence: &Sentence, corpus: &Corpus) -> Result<Verdict, Pending>;

    /// Rejects settings that their types allow but the rule does not. Runs once, before scoring. It
    /// must accept the defaults: the host loads a rule with them to learn its name.
    ///
    /// # Errors
    /// A message that names the setting.
    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A sentence of a completion, with the corpus that answers requests about it.
#[derive(Debug, Clone)]
pub struct SentenceContext<'a> {
    /// The sentence.
    pub sentence: &'a Sentence,
    /// Replies to the requests for this sentence.
    pub corpus: Corpus<'a>,
}

/// A reward for the sentences of a completion that depends on all of them. Every [`SentenceRule`]
/// is one.
///
/// ```
/// use corver_sdk::prelude::*;
///
/// settings! {
///     /// Rewards a sentence as First does, but not a second time.
///     pub struct Fresh {
///         /// From the count to the reward.
///         pub tiers: Tiers = Tiers::default(),
///     }
/// }
///
/// impl CompletionRule for Fresh {
///     fn score_sentences(
///         &self,
///         completion: &Completion,
///         contexts: &[SentenceContext],
///     ) -> Vec<Result<Verdict, Pending>> {
///         let mut outcomes = Vec::new();
///         for (index, context) in contexts.iter().enumerate() {
///             let earlier = &completion.sentences[..index];
///             let outcome = if earlier.iter().any(|other| other.text == context.sentence.text) {
///                 Ok(Verdict::abstain("repeated"))
///             } else {
///                 let reward = |count| self.tiers.reward(Some(count));
///                 first_fact(context.sentence, &context.corpus, self.tiers.top(), reward)
///             };
///             outcomes.push(outcome);
///         }
///         outcomes
///     }
/// }
///
/// corver_sdk::export!(Fresh);
/// # use corver_sdk::testing::{completion, counts, run_completion};
/// # let rome = ("Rome is in Italy.", &[("Rome", "is in", "Italy")][..]);
/// # let scored = run_completion(&Fresh::default(), &completion(&[rome, rome]), &counts(&[("Rome AND Italy", 30)]));
/// # assert_eq!((scored[0].reward, scored[1].reward), (Some(0.1), None));
/// ```
pub trait CompletionRule: RuleSettings {
    /// As [`SentenceRule::REQUIRES`].
    const REQUIRES: &'static [Capability] = &[];

    /// As [`SentenceRule::READS_TRIPLETS`].
    const READS_TRIPLETS: bool = true;

    /// As [`SentenceRule::CREDIT`].
    const CREDIT: CreditKind = CreditKind::AllTokens;

    /// Returns one outcome per sentence of the completion, in order. `contexts` has each sentence
    /// with its own corpus. Runs again, for the whole completion, until no outcome is pending. It
    /// must depend on its arguments alone and send the same requests in the same order.
    fn score_sentences(
        &self,
        completion: &Completion,
        contexts: &[SentenceContext],
    ) -> Vec<Result<Verdict, Pending>>;

    /// As [`SentenceRule::validate`].
    ///
    /// # Errors
    /// A message that names the setting.
    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

impl<R: SentenceRule> CompletionRule for R {
    const REQUIRES: &'static [Capability] = <R as SentenceRule>::REQUIRES;
    const READS_TRIPLETS: bool = <R as SentenceRule>::READS_TRIPLETS;
    const CREDIT: CreditKind = <R as SentenceRule>::CREDIT;

    fn score_sentences(
        &self,
        _completion: &Completion,
        contexts: &[SentenceContext],
    ) -> Vec<Result<Verdict, Pending>> {
        contexts.iter().map(|context| self.score(context.sentence, &context.corpus)).collect()
    }

    fn validate(&self) -> Result<(), String> {
        SentenceRule::validate(self)
    }
}

/// Returns the rule's outcomes for the sentences of a completion, each with its corpus.
pub(crate) fn score_completion<'a, R: CompletionRule>(
    rule: &R,
    completion: &'a Completion,
    corpora: Vec<Corpus<'a>>,
) -> Vec<Result<Verdict, Pending>> {
    let sentences = completion.sentences.iter().zip(corpora);
    let contexts: Vec<SentenceContext<'a>> =
        sentences.map(|(sentence, corpus)| SentenceContext { sentence, corpus }).collect();
    rule.score_sentences(completion, &contexts)
}

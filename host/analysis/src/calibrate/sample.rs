//! Sentences whose truth is known: what a policy says of a known world, or what a person has
//! labelled.

use std::collections::HashMap;

use corver_core::split::split;
use corver_core::{
    Backends, BoxError, Compatibility, Completion, Extractor, Question, Sampler, Sampling, Section,
    Sentence, SentenceScorer, Verdict,
};

use super::annotated::Annotated;
use super::label::Label;
use corver_eval::Truth;
use corver_runs::data_order::seed_of_step;

/// Completions that a rule is asked about at once.
const TOGETHER: usize = 256;

/// Why there are no judged sentences.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SampleError {
    /// The policy could not be sampled.
    #[error("answering the questions")]
    Sample(#[source] BoxError),
    /// The extractor failed.
    #[error("extracting the triplets of what was answered")]
    Extract(#[source] BoxError),
    /// The rule or a verifier failed.
    #[error("judging the sentences")]
    Judge(#[source] BoxError),
}

/// How a policy is sampled.
#[derive(Debug, Clone, Copy)]
pub struct SamplePlan<'a> {
    /// How completions are drawn.
    pub sampling: Sampling,
    /// Completions decoded together.
    pub batch: usize,
    /// How they are cut into sentences.
    pub compatibility: Compatibility,
    /// Knows what is true.
    pub truth: &'a dyn Truth,
    /// Decides every draw.
    pub seed: u64,
}

/// Completions with their triplets; of some sentences it is known whether they are true.
#[derive(Debug, Default)]
pub struct Sampled {
    questions: Vec<Question>,
    said: Vec<Said>,
}

/// One completion.
#[derive(Debug)]
struct Said {
    question: usize,
    text: String,
    sentences: Vec<Sentence>,
    truths: Vec<Option<bool>>,
}

impl Said {
    fn completion<'a>(&'a self, questions: &'a [Question]) -> Completion<'a> {
        let Question { question, golds, title, evidence, .. } = &questions[self.question];
        Completion {
            question,
            golds,
            title: title.as_deref(),
            evidence,
            text: &self.text,
            sentences: &self.sentences,
        }
    }
}

/// A sentence whose truth is known, and what a rule says of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged<'a> {
    /// Number of its question.
    pub question: usize,
    /// Its text.
    pub sentence: &'a str,
    /// All that it states.
    pub is_true: bool,
    /// The rule's word.
    pub verdict: Verdict,
}

impl Sampled {
    /// Answers questions as training does, and extracts the triplets of all that is said.
    /// `progress` is given the number of questions answered.
    ///
    /// # Errors
    /// Where policy or extractor fail.
    pub fn draw(
        policy: &mut dyn Sampler,
        extractor: &mut dyn Extractor,
        questions: Vec<Question>,
        plan: &SamplePlan<'_>,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Self, SampleError> {
        let mut said = Vec::new();
        let together = (plan.batch / plan.sampling.num_generations.max(1)).max(1);
        for (n, batch) in questions.chunks(together).enumerate() {
            let rollouts =
                policy.sample(batch, &plan.sampling, seed_of_step(plan.seed, n), &mut |_, _| ());
            for rollout in rollouts.map_err(SampleError::Sample)? {
                let sentences = split(&rollout.text, plan.compatibility).sentences;
                let truths =
                    sentences.iter().map(|sentence| plan.truth.is_true(&sentence.text)).collect();
                said.push(Said {
                    question: n * together + rollout.question,
                    text: rollout.text,
                    sentences,
                    truths,
                });
            }
            progress(n * together + batch.len());
        }
        let texts: Vec<&str> = said
            .iter()
            .flat_map(|said| &said.sentences)
            .map(|sentence| sentence.text.as_str())
            .collect();
        let found = extractor.extract(&texts).map_err(SampleError::Extract)?;
        let sentences = said.iter_mut().flat_map(|said| &mut said.sentences);
        sentences.zip(found).for_each(|(sentence, triplets)| sentence.triplets = triplets);
        Ok(Self { questions, said })
    }

    /// The sentences that people have labelled correct or incorrect, each a completion with the one
    /// triplet of its row.
    #[must_use]
    pub fn labelled(annotated: &Annotated) -> Self {
        let mut sampled = Self::default();
        let mut known: HashMap<&str, usize> = HashMap::new();
        for row in &annotated.rows {
            let is_true = match row.label {
                Some(Label::Correct) => true,
                Some(Label::Incorrect) => false,
                Some(Label::Unclear) | None => continue,
            };
            let question = *known.entry(&row.question).or_insert(sampled.questions.len());
            if question == sampled.questions.len() {
                let text = row.question.clone();
                sampled.questions.push(Question {
                    question: text,
                    golds: Vec::new(),
                    ..Question::default()
                });
            }
            let (text, triplets) = (row.sentence.clone(), vec![row.triplet.clone()]);
            let sentence =
                Sentence { text: text.clone(), section: Section::Body, span: None, triplets };
            sampled.said.push(Said {
                question,
                text,
                sentences: vec![sentence],
                truths: vec![Some(is_true)],
            });
        }
        sampled
    }

    /// All sentences, and those whose truth is known.
    #[must_use]
    pub fn sentences(&self) -> (usize, usize) {
        let truths = self.said.iter().flat_map(|said| &said.truths);
        (truths.clone().count(), truths.flatten().count())
    }

    /// The question of this number.
    #[must_use]
    pub fn question(&self, number: usize) -> &str {
        &self.questions[number].question
    }

    /// What a rule says of the sentences whose truth is known. It sees whole completions, as in
    /// training.
    ///
    /// # Errors
    /// Where the rule or a verifier fails.
    pub fn judge(
        &self,
        rule: &mut dyn SentenceScorer,
        backends: &mut Backends<'_>,
    ) -> Result<Vec<Judged<'_>>, SampleError> {
        let mut judged = Vec::new();
        for chunk in self.said.chunks(TOGETHER) {
            let completions: Vec<Completion<'_>> =
                chunk.iter().map(|said| said.completion(&self.questions)).collect();
            let all_verdicts = rule.score(&completions, backends).map_err(SampleError::Judge)?;
            for (said, verdicts) in chunk.iter().zip(all_verdicts) {
                let of_sentence = said.sentences.iter().zip(&said.truths).zip(verdicts);
                judged.extend(of_sentence.filter_map(|((sentence, is_true), verdict)| {
                    let (question, sentence) = (said.question, sentence.text.as_str());
                    is_true.map(|is_true| Judged { question, sentence, is_true, verdict })
                }));
            }
        }
        Ok(judged)
    }
}

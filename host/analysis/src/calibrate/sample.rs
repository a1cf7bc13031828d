//! Sentences whose truth is known: a policy's answers about a known world, or sentences that a person
//! has labelled.

use std::collections::HashMap;

use corver_core::language::bare_triplets;
use corver_core::split::split;
use corver_core::{
    Backends, BoxError, Completion, Extractor, ExtractorInput, Language, Question, Sampler,
    Sampling, Section, Sentence, SentenceScorer, SentenceVerdict, TextSettings,
};

use super::annotated::Annotated;
use super::label::TruthLabel;
use corver_eval::FactChecker;
use corver_runs::data_order::seed_of_step;

/// Number of completions that a rule scores in one batch.
const BATCH: usize = 256;

/// Error of sampling or scoring sentences.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SampleError {
    /// The policy could not be sampled.
    #[error("answering the questions")]
    Sample(#[source] BoxError),
    /// The extractor failed on the sentences.
    #[error("extracting the triplets of the sentences")]
    Extract(#[source] BoxError),
    /// The rule or a backend failed.
    #[error("scoring the sentences")]
    Score(#[source] BoxError),
}

/// Settings for sampling a policy.
#[derive(Debug, Clone, Copy)]
pub struct SamplePlan<'a> {
    /// Settings of the sampler.
    pub sampling: Sampling,
    /// Number of completions decoded together.
    pub batch: usize,
    /// Settings that decide how a completion is read.
    pub text: TextSettings,
    /// Source of the truth of sentences.
    pub truth: &'a dyn FactChecker,
    /// Seed of the sampling.
    pub seed: u64,
}

/// Completions, and for some sentences the truth.
#[derive(Debug, Default)]
pub struct Sampled {
    questions: Vec<Question>,
    completions: Vec<AuditCompletion>,
}

/// Completion with the truth of its sentences.
#[derive(Debug)]
struct AuditCompletion {
    question: usize,
    text: String,
    sentences: Vec<Sentence>,
    /// Truth of each sentence; `None` if it is unknown.
    truths: Vec<Option<bool>>,
}

impl AuditCompletion {
    fn as_completion<'a>(&'a self, questions: &'a [Question]) -> Completion<'a> {
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

/// Sentence whose truth is known, with a rule's verdict.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoredSentence<'a> {
    /// Index of the question.
    pub question: usize,
    /// Text of the sentence.
    pub sentence: &'a str,
    /// True if everything that the sentence states is true.
    pub is_true: bool,
    /// Verdict of the rule.
    pub verdict: SentenceVerdict,
}

impl Sampled {
    /// Samples completions as training does; their sentences have no triplets yet. `progress` receives
    /// the number of questions answered.
    ///
    /// # Errors
    /// If the policy fails.
    pub fn draw(
        policy: &mut dyn Sampler,
        questions: Vec<Question>,
        plan: &SamplePlan<'_>,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Self, SampleError> {
        let mut completions: Vec<AuditCompletion> = Vec::new();
        let batch_size = (plan.batch / plan.sampling.num_generations.max(1)).max(1);
        for (n, batch) in questions.chunks(batch_size).enumerate() {
            let rollouts = policy
                .sample(batch, &plan.sampling, seed_of_step(plan.seed, n), &mut |_, _| ())
                .map_err(SampleError::Sample)?;
            for rollout in rollouts {
                let sentences = split(&rollout.text, plan.text).sentences;
                let truths =
                    sentences.iter().map(|sentence| plan.truth.is_true(&sentence.text)).collect();
                completions.push(AuditCompletion {
                    question: n * batch_size + rollout.question,
                    text: rollout.text,
                    sentences,
                    truths,
                });
            }
            progress(n * batch_size + batch.len());
        }
        Ok(Self { questions, completions })
    }

    /// Replaces the triplets of all sentences by those of an extractor.
    ///
    /// # Errors
    /// If the extractor fails.
    pub fn extract(
        &mut self,
        extractor: &mut dyn Extractor,
        language: Language,
    ) -> Result<(), SampleError> {
        let mut inputs = Vec::new();
        for completion in &self.completions {
            let question = self.questions[completion.question].question.as_str();
            for sentence in &completion.sentences {
                inputs.push(ExtractorInput { sentence: &sentence.text, question });
            }
        }
        let triplets = extractor.extract(&inputs).map_err(SampleError::Extract)?;
        let sentences =
            self.completions.iter_mut().flat_map(|completion| &mut completion.sentences);
        for (sentence, triplets_of_sentence) in sentences.zip(triplets) {
            sentence.triplets = bare_triplets(triplets_of_sentence, language);
        }
        Ok(())
    }

    /// Converts the sentences that people have labelled correct or incorrect, each to a completion with
    /// the one triplet of its row. Each row without a question has a question of its own.
    #[must_use]
    pub fn from_labels(annotated: &Annotated) -> Self {
        let mut sampled = Self::default();
        let mut known: HashMap<&str, usize> = HashMap::new();
        for row in &annotated.rows {
            let is_true = match row.label {
                Some(TruthLabel::Correct) => true,
                Some(TruthLabel::Incorrect) => false,
                Some(TruthLabel::Unclear) | None => continue,
            };
            let new_question = sampled.questions.len();
            let question = if row.question.trim().is_empty() {
                new_question
            } else {
                *known.entry(&row.question).or_insert(new_question)
            };
            if question == new_question {
                let text = row.question.clone();
                sampled.questions.push(Question { question: text, ..Question::default() });
            }
            let sentence = Sentence {
                text: row.sentence.clone(),
                section: Section::Body,
                span: None,
                triplets: vec![row.triplet.clone()],
            };
            sampled.completions.push(AuditCompletion {
                question,
                text: row.sentence.clone(),
                sentences: vec![sentence],
                truths: vec![Some(is_true)],
            });
        }
        sampled
    }

    /// Returns the number of sentences, and of those whose truth is known.
    #[must_use]
    pub fn num_sentences(&self) -> (usize, usize) {
        let truths = self.completions.iter().flat_map(|completion| &completion.truths);
        (truths.clone().count(), truths.flatten().count())
    }

    /// Returns the text of the question with this index.
    #[must_use]
    pub fn question(&self, index: usize) -> &str {
        &self.questions[index].question
    }

    /// Scores the sentences whose truth is known. The rule receives complete completions, as in
    /// training.
    ///
    /// # Errors
    /// If the rule or a backend fails.
    pub fn score(
        &self,
        rule: &mut dyn SentenceScorer,
        backends: &mut Backends<'_>,
    ) -> Result<Vec<ScoredSentence<'_>>, SampleError> {
        let mut scored = Vec::new();
        for batch in self.completions.chunks(BATCH) {
            let inputs: Vec<Completion<'_>> =
                batch.iter().map(|completion| completion.as_completion(&self.questions)).collect();
            let verdicts = rule.score(&inputs, backends).map_err(SampleError::Score)?;
            for (completion, verdicts_of_completion) in batch.iter().zip(verdicts) {
                let sentences = completion.sentences.iter().zip(&completion.truths);
                for ((sentence, truth), verdict) in sentences.zip(verdicts_of_completion) {
                    if let Some(is_true) = *truth {
                        scored.push(ScoredSentence {
                            question: completion.question,
                            sentence: &sentence.text,
                            is_true,
                            verdict,
                        });
                    }
                }
            }
        }
        Ok(scored)
    }
}

#[cfg(test)]
mod tests {
    use super::super::sheet::tests::row;
    use super::*;

    #[test]
    fn sentences_without_question_are_of_different_questions() {
        let mut rows = Vec::new();
        for (n, question) in ["", " ", "Where is it?", "Where is it?", ""].into_iter().enumerate() {
            let mut labelled = row(n, 3, Some(TruthLabel::Correct));
            labelled.question = question.to_owned();
            rows.push(labelled);
        }
        let sampled = Sampled::from_labels(&Annotated { rows, ..Annotated::default() });
        let questions: Vec<usize> =
            sampled.completions.iter().map(|completion| completion.question).collect();
        assert_eq!(questions, [0, 1, 2, 2, 3]);
    }
}

//! A question set, answered greedily and graded.

use corver_core::{
    Compatibility, Graders, Label, PartError, Question, RewardSettings, Rollout, Sampler, Sampling, Scorers,
    SentenceTrace, StepError, score,
};
use serde::{Deserialize, Serialize};

use super::grade::{Grades, Missing, grade, keeps_format, missing};

/// Why an evaluation stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluateError {
    /// The policy could not be sampled.
    #[error("answering the questions")]
    Sample(#[source] PartError),
    /// The sentences could not be scored.
    #[error("scoring the answers")]
    Score(#[source] StepError),
}

/// How a question set is answered.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EvaluateSettings {
    /// Tokens.
    pub max_completion_length: usize,
    /// Questions answered together.
    pub batch: usize,
}

impl Default for EvaluateSettings {
    /// The paper's evaluation protocol.
    fn default() -> Self {
        Self { max_completion_length: 1000, batch: 64 }
    }
}

/// One graded answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GradedAnswer {
    /// What it was judged to be.
    pub grade: Label,
    /// Why it was not attempted, where it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<Missing>,
    /// Tokens generated.
    pub length: usize,
    /// What was asked.
    pub question: String,
    /// See [`Question::popularity`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub popularity: Option<u64>,
    /// What was generated.
    pub completion: String,
    /// How the run's rule judges its sentences; empty where it was not asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sentences: Vec<SentenceTrace>,
}

/// What a policy made of a question set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Correct, incorrect, not attempted.
    pub grades: Grades,
    /// Share of right answers.
    pub accuracy: f64,
    /// Share of completions that say that they do not know. This and the next two make up what is not attempted.
    pub refusal_rate: f64,
    /// Share of completions whose tokens were used up before an answer.
    pub cut_off_rate: f64,
    /// Share of completions that ended without an answer.
    pub unformatted_rate: f64,
    /// See [`Grades::f1`].
    pub f1: f64,
    /// Share of completions that keep the template.
    pub format_rate: f64,
    /// Of the sentences that a count decided, the share whose entities occur together in the corpus at all; `None` where
    /// no count decided any.
    pub supported_rate: Option<f64>,
    /// Sentences that a count decided.
    pub counted_sentences: usize,
    /// Tokens per completion.
    pub mean_length: f64,
}

/// Answers `questions` with one greedy completion each and grades them; with `scorers`, also asks whether their sentences are
/// supported by the corpus. `progress` is given the number of questions answered so far.
///
/// # Errors
/// Where a part fails.
pub fn evaluate(
    policy: &mut dyn Sampler,
    mut scorers: Option<&mut Scorers<'_>>,
    questions: &[Question],
    settings: &EvaluateSettings,
    compatibility: Compatibility,
    progress: &mut dyn FnMut(usize),
) -> Result<(Evaluation, Vec<GradedAnswer>), EvaluateError> {
    let sampling = Sampling::greedy(settings.max_completion_length);
    let mut answers = Vec::with_capacity(questions.len());
    for batch in questions.chunks(settings.batch.max(1)) {
        let rollouts = policy.sample(batch, &sampling, 0).map_err(EvaluateError::Sample)?;
        let sentences = match scorers.as_deref_mut() {
            Some(scorers) => judged(&rollouts, batch, scorers, compatibility).map_err(EvaluateError::Score)?,
            None => vec![Vec::new(); rollouts.len()],
        };
        for (rollout, sentences) in rollouts.into_iter().zip(sentences) {
            let Question { question, golds, popularity, .. } = &batch[rollout.question];
            let grade = grade(&rollout.text, golds, compatibility);
            let missing =
                (grade == Label::NotAttempted).then(|| missing(&rollout.text, rollout.finished, compatibility));
            answers.push(GradedAnswer {
                grade,
                missing,
                length: rollout.tokens.len(),
                question: question.clone(),
                popularity: *popularity,
                completion: rollout.text,
                sentences,
            });
        }
        progress(answers.len());
    }
    Ok((summarize(&answers), answers))
}

/// The sentences of each completion, with what the run's rule says to them. The run's judge and format check are not asked.
fn judged(
    rollouts: &[Rollout],
    questions: &[Question],
    scorers: &mut Scorers<'_>,
    compatibility: Compatibility,
) -> Result<Vec<Vec<SentenceTrace>>, StepError> {
    let mut graders = Graders::default();
    let Scorers { extractor, counter, sentence_scorer, .. } = scorers;
    let mut scorers = Scorers {
        extractor: &mut **extractor,
        counter: &mut **counter,
        sentence_scorer: &mut **sentence_scorer,
        graders: &mut graders,
    };
    let rewards = RewardSettings { compatibility, ..RewardSettings::default() };
    let scored = score(rollouts, questions, &mut scorers, &rewards)?;
    Ok(scored.traces.into_iter().map(|trace| trace.sentences).collect())
}

fn summarize(answers: &[GradedAnswer]) -> Evaluation {
    let mut grades = Grades::default();
    answers.iter().for_each(|answer| grades.add(answer.grade));
    let counts: Vec<u64> = answers
        .iter()
        .flat_map(|answer| &answer.sentences)
        .filter_map(|sentence| sentence.verdict.as_ref()?.count)
        .collect();
    let share = |part: usize, whole: usize| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    let missing = |why| share(answers.iter().filter(|answer| answer.missing == Some(why)).count(), answers.len());
    Evaluation {
        accuracy: grades.rate(grades.correct),
        refusal_rate: missing(Missing::Refused),
        cut_off_rate: missing(Missing::CutOff),
        unformatted_rate: missing(Missing::Unformatted),
        f1: grades.f1(),
        format_rate: share(answers.iter().filter(|answer| keeps_format(&answer.completion)).count(), answers.len()),
        supported_rate: (!counts.is_empty())
            .then(|| share(counts.iter().filter(|count| **count > 0).count(), counts.len())),
        counted_sentences: counts.len(),
        mean_length: share(answers.iter().map(|answer| answer.length).sum(), answers.len()),
        grades,
    }
}

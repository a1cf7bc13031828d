//! A question set, answered and graded: greedily, or several times for pass@k.

use std::collections::BTreeMap;

use corver_core::response::AnswerRule;
use corver_core::{
    BoxError, Compatibility, Graders, Label, Question, RewardSettings, Rollout, Sampler, Scorers,
    SentenceTrace, StepError, score,
};
use corver_settings::EvaluateSettings;
use serde::{Deserialize, Serialize};

use super::grade::{Grades, Missing, keeps_format, missing};
use super::truth::{FactCheck, Truth};
use corver_runs::data_order::seed_of_step;

/// Why an evaluation stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluateError {
    /// The policy could not be sampled.
    #[error("answering the questions")]
    Sample(#[source] BoxError),
    /// The sentences could not be scored.
    #[error("scoring the answers")]
    Score(#[source] StepError),
}

/// How a question set is evaluated.
#[derive(Debug, Clone, Copy)]
pub struct EvaluatePlan<'a> {
    /// How the questions are answered.
    pub settings: EvaluateSettings,
    /// Whose grader.
    pub compatibility: Compatibility,
    /// What is true, where somebody knows.
    pub truth: Option<&'a dyn Truth>,
    /// Decides the answers that are drawn.
    pub seed: u64,
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
    /// Which of the answers that were drawn this is, counted from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<usize>,
    /// See [`Question::popularity`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub popularity: Option<u64>,
    /// What was generated.
    pub completion: String,
    /// Where the truth is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<FactCheck>,
    /// How the run's rule judges its sentences; empty where it was not asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sentences: Vec<SentenceTrace>,
}

/// What a policy made of a question set; [`FIGURES`](super::FIGURES) has titles, units and meanings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Correct, incorrect, not attempted.
    pub grades: Grades,
    /// Share of right answers.
    pub accuracy: f64,
    /// Where several answers were drawn: k → the probability that one of k is right, for powers of
    /// two.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pass_at: BTreeMap<usize, f64>,
    /// Share of wrong answers.
    pub incorrect_rate: f64,
    /// Share of questions without an answer (NA), which the next three make up.
    pub not_attempted_rate: f64,
    /// Share of completions that say that they do not know.
    pub refusal_rate: f64,
    /// Share of completions whose tokens were used up before an answer.
    pub cut_off_rate: f64,
    /// Share of completions that ended without an answer.
    pub unformatted_rate: f64,
    /// See [`Grades::f1`].
    pub f1: f64,
    /// Share of completions that keep the template.
    pub format_rate: f64,
    /// Of the sentences that a count decided, the share whose entities occur together in the corpus
    /// at all; `None` where no count decided any.
    pub supported_rate: Option<f64>,
    /// Sentences that a count decided.
    pub counted_sentences: usize,
    /// True sentences of a completion, on average; `None` where nobody knows the truth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub true_sentences: Option<f64>,
    /// And false ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub false_sentences: Option<f64>,
    /// Tokens per completion.
    pub mean_length: f64,
}

/// Answers `questions` and grades the answers; with `scorers`, also asks whether their sentences
/// are supported by the corpus, unless the rule asks for more than counts: an evaluation calls no
/// verifier. `progress` is given the number of questions answered so far.
///
/// # Errors
/// Where a part fails.
pub fn evaluate(
    policy: &mut dyn Sampler,
    mut scorers: Option<&mut Scorers<'_, '_>>,
    questions: &[Question],
    plan: &EvaluatePlan<'_>,
    progress: &mut dyn FnMut(usize),
) -> Result<(Evaluation, Vec<GradedAnswer>), EvaluateError> {
    let EvaluatePlan { settings, compatibility, truth, seed } = *plan;
    let rule = AnswerRule::of_evaluation(compatibility);
    let samples = settings.samples.max(1);
    let mut answers = Vec::with_capacity(questions.len() * samples);
    for (batch_number, batch) in questions.chunks((settings.batch / samples).max(1)).enumerate() {
        let rollouts = policy
            .sample(batch, &settings.sampling(), seed_of_step(seed, batch_number), &mut |_, _| ())
            .map_err(EvaluateError::Sample)?;
        let all_sentences = match scorers.as_deref_mut() {
            Some(scorers) if scorers.sentence_scorer.required_capabilities().is_empty() => {
                judged(&rollouts, batch, scorers, compatibility).map_err(EvaluateError::Score)?
            }
            _ => vec![Vec::new(); rollouts.len()],
        };
        for (n, (rollout, sentences)) in rollouts.into_iter().zip(all_sentences).enumerate() {
            let Question { question, golds, popularity, .. } = &batch[rollout.question];
            let grade = rule.grade(&rollout.text, golds);
            let missing = (grade == Label::NotAttempted)
                .then(|| missing(&rollout.text, rollout.finished, rule));
            answers.push(GradedAnswer {
                grade,
                missing,
                length: rollout.tokens.len(),
                question: question.clone(),
                sample: (samples > 1).then_some(n % samples),
                popularity: *popularity,
                told: truth.map(|truth| FactCheck::by(&rollout.text, truth, compatibility)),
                completion: rollout.text,
                sentences,
            });
        }
        progress(answers.len() / samples);
    }
    Ok((summarize(&answers, samples, compatibility), answers))
}

/// The sentences of each completion, with what the run's rule says to them. The run's judge and
/// format check are not asked.
fn judged(
    rollouts: &[Rollout],
    questions: &[Question],
    scorers: &mut Scorers<'_, '_>,
    compatibility: Compatibility,
) -> Result<Vec<Vec<SentenceTrace>>, StepError> {
    let mut graders = Graders::default();
    let Scorers { extractor, backends, sentence_scorer, .. } = scorers;
    let mut sentence_scorers = Scorers {
        extractor: &mut **extractor,
        backends,
        sentence_scorer: &mut **sentence_scorer,
        graders: &mut graders,
    };
    let rewards = RewardSettings { compatibility, ..RewardSettings::default() };
    let scored = score(rollouts, questions, &mut sentence_scorers, &rewards)?;
    Ok(scored.completions.into_iter().map(|completion| completion.trace.sentences).collect())
}

/// The figures of a question set's answers, of which there are `samples` to a question.
#[must_use]
pub fn summarize(
    answers: &[GradedAnswer],
    samples: usize,
    compatibility: Compatibility,
) -> Evaluation {
    let mut grades = Grades::default();
    answers.iter().for_each(|answer| grades.add(answer.grade));
    let counts: Vec<u64> = answers
        .iter()
        .flat_map(|answer| &answer.sentences)
        .filter_map(|sentence| sentence.verdict.as_ref()?.count)
        .collect();
    let share =
        |part: usize, whole: usize| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    let keeps_format = |answer: &&GradedAnswer| keeps_format(&answer.completion, compatibility);
    let missing = |why| {
        share(answers.iter().filter(|answer| answer.missing == Some(why)).count(), answers.len())
    };
    let told = |number: fn(&FactCheck) -> usize| {
        let told: Option<usize> =
            answers.iter().map(|answer| answer.told.as_ref().map(number)).sum();
        told.map(|told| share(told, answers.len()))
    };
    Evaluation {
        accuracy: grades.rate(grades.correct),
        pass_at: pass_at(answers, samples),
        incorrect_rate: grades.rate(grades.incorrect),
        not_attempted_rate: grades.rate(grades.not_attempted),
        refusal_rate: missing(Missing::Refused),
        cut_off_rate: missing(Missing::CutOff),
        unformatted_rate: missing(Missing::Unformatted),
        f1: grades.f1(),
        format_rate: share(answers.iter().filter(keeps_format).count(), answers.len()),
        supported_rate: (!counts.is_empty())
            .then(|| share(counts.iter().filter(|count| **count > 0).count(), counts.len())),
        counted_sentences: counts.len(),
        true_sentences: told(|told| told.truths),
        false_sentences: told(|told| told.falsehoods),
        mean_length: share(answers.iter().map(|answer| answer.length).sum(), answers.len()),
        grades,
    }
}

/// k → the mean over the questions of 1 − C(n−c, k) / C(n, k), where c of n answers are right: what
/// k answers would contain, without the bias of counting the first k (Chen et al. 2021). Empty for
/// one answer a question.
fn pass_at(answers: &[GradedAnswer], samples: usize) -> BTreeMap<usize, f64> {
    if samples < 2 || answers.is_empty() {
        return BTreeMap::new();
    }
    let right = |of_question: &[GradedAnswer]| {
        of_question.iter().filter(|answer| answer.grade == Label::Good).count()
    };
    let wrong: Vec<usize> =
        answers.chunks(samples).map(|of_question| samples - right(of_question)).collect();
    let all_wrong = |num_wrong: usize, k: usize| -> f64 {
        (0..k)
            .map(|drawn| num_wrong.saturating_sub(drawn) as f64 / (samples - drawn) as f64)
            .product()
    };
    let powers = std::iter::successors(Some(1), |k| Some(2 * k)).take_while(|&k| k <= samples);
    let mean = |k| {
        wrong.iter().map(|&num_wrong| 1.0 - all_wrong(num_wrong, k)).sum::<f64>()
            / wrong.len() as f64
    };
    powers.map(|k| (k, mean(k))).collect()
}

#[cfg(test)]
mod tests {
    use corver_core::Sampling;

    use super::*;

    /// Says Rome or Oslo, in turns.
    struct Undecided;

    impl Sampler for Undecided {
        fn sample(
            &mut self,
            questions: &[Question],
            sampling: &Sampling,
            _: u64,
            _: &mut dyn FnMut(usize, &Rollout),
        ) -> Result<Vec<Rollout>, BoxError> {
            let many = 0..questions.len() * sampling.num_generations;
            let said = |n: usize| Rollout {
                question: n / sampling.num_generations,
                text: format!(
                    "<answer>{}</answer>",
                    if n.is_multiple_of(2) { "Rome" } else { "Oslo" }
                ),
                tokens: vec![0],
                log_probs: vec![0.0],
                token_spans: vec![None],
                finished: true,
            };
            Ok(many.map(said).collect())
        }
    }

    #[test]
    fn several_answers_give_pass_at_k() {
        let question = |gold: &str| Question {
            question: "q".into(),
            golds: vec![gold.into()],
            ..Question::default()
        };
        let settings = EvaluateSettings { samples: 4, batch: 8, ..EvaluateSettings::default() };
        let plan =
            EvaluatePlan { settings, compatibility: Compatibility::Paper, truth: None, seed: 1 };
        let questions = [question("Rome"), question("Paris"), question("Oslo")];
        let mut seen = Vec::new();
        let (evaluation, answers) =
            evaluate(&mut Undecided, None, &questions, &plan, &mut |done| seen.push(done)).unwrap();
        assert_eq!((answers.len(), evaluation.accuracy, seen), (12, 4.0 / 12.0, vec![2, 3]));
        assert_eq!(answers[6].sample, Some(2));
        // Two of four are right: of two drawn, one is with 1 − (2/4)(1/3); of four surely. A third
        // of the questions never.
        let expected = [(1, 1.0 / 3.0), (2, 2.0 / 3.0 * 5.0 / 6.0), (4, 2.0 / 3.0)];
        for ((k, got), (wanted_k, wanted)) in evaluation.pass_at.iter().zip(expected) {
            assert!(*k == wanted_k && (got - wanted).abs() < 1e-12, "{:?}", evaluation.pass_at);
        }
        assert_eq!(evaluation.pass_at.len(), 3);
    }
}

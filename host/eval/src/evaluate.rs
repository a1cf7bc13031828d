//! Evaluation on a question set: one greedy answer per question, or several samples for pass@k.

use std::collections::BTreeMap;

use corver_core::response::AnswerRule;
use corver_core::split::split;
use corver_core::{
    BoxError, Compatibility, Graders, Label, Question, RewardSettings, Rollout, Sampler, Scorers,
    SentenceTrace, StepError, TextSettings, score,
};
use corver_settings::EvaluateSettings;
use serde::{Deserialize, Serialize};

use super::grade::{Grades, MissingAnswer, keeps_format, missing_answer};
use super::truth::{FactCheck, FactChecker};
use corver_runs::data_order::seed_of_step;

/// Error of an evaluation: the policy could not answer, or the sentences could not be scored.
#[derive(Debug, thiserror::Error)]
#[error("{action}")]
pub struct EvaluateError {
    action: &'static str,
    source: BoxError,
}

/// Settings of an evaluation.
#[derive(Debug, Clone, Copy)]
pub struct EvaluatePlan<'a> {
    /// Settings of sampling and batches.
    pub settings: EvaluateSettings,
    /// Settings that decide how an answer is read.
    pub text: TextSettings,
    /// Facts of the questions' world. `None`: they are not known.
    pub facts: Option<&'a dyn FactChecker>,
    /// Seed of the samples.
    pub seed: u64,
}

/// An answer with its grade.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GradedAnswer {
    /// Grade of the answer.
    pub grade: Label,
    /// Reason for the grade NOT_ATTEMPTED. `None`: it has another grade.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<MissingAnswer>,
    /// Length of the completion, tokens.
    pub length: usize,
    /// Text of the question.
    pub question: String,
    /// Index among the samples of its question, from 0. `None`: there is one greedy answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<usize>,
    /// Popularity of the question's subject: see [`Question::popularity`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub popularity: Option<u64>,
    /// Text that the policy generated, tags included.
    pub completion: String,
    /// True and false sentences. `None`: the facts are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fact_check: Option<FactCheck>,
    /// Sentences with the verdicts of the run's rule; empty if they were not scored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sentences: Vec<SentenceTrace>,
}

/// Figures of a policy on a question set; [`FIGURES`](super::FIGURES) has titles, units and meanings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Number of answers with each grade.
    pub grades: Grades,
    /// Share of correct answers.
    pub accuracy: f64,
    /// pass@k, the probability that one of k samples is correct, for powers of two. Empty without
    /// samples.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pass_at: BTreeMap<usize, f64>,
    /// Share of incorrect answers.
    pub incorrect_rate: f64,
    /// Share of questions without an answer (NA), the sum of the next three.
    pub not_attempted_rate: f64,
    /// Share of completions that refuse to answer.
    pub refusal_rate: f64,
    /// Share of completions that were cut off before an answer.
    pub cut_off_rate: f64,
    /// Share of completions that ended without an answer.
    pub unformatted_rate: f64,
    /// F1 of the grades: see [`Grades::f1`].
    pub f1: f64,
    /// Share of completions that follow the template.
    pub format_rate: f64,
    /// Share of the sentences decided by a count whose entities occur together in the corpus at all.
    /// `None`: no sentence was decided by a count.
    pub supported_rate: Option<f64>,
    /// Number of sentences that a count decided.
    pub counted_sentences: usize,
    /// Mean number of true sentences in a completion. `None`: the facts are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub true_sentences: Option<f64>,
    /// Mean number of false sentences in a completion. `None`: the facts are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub false_sentences: Option<f64>,
    /// Mean length of a completion, tokens.
    pub mean_length: f64,
}

/// Answers `questions` and grades the answers. With `scorers`, it also scores the sentences, for the
/// share that the corpus supports. A rule that needs capabilities is left out, because an evaluation
/// only counts. `progress` receives the number of questions answered so far.
///
/// # Errors
/// Fails if the policy cannot be sampled, or the sentences cannot be scored.
pub fn evaluate(
    policy: &mut dyn Sampler,
    mut scorers: Option<&mut Scorers<'_, '_>>,
    questions: &[Question],
    plan: &EvaluatePlan<'_>,
    progress: &mut dyn FnMut(usize),
) -> Result<(Evaluation, Vec<GradedAnswer>), EvaluateError> {
    let EvaluatePlan { settings, text, facts, seed } = *plan;
    let rule = AnswerRule::of_evaluation(text);
    let samples = settings.samples.max(1);
    let mut answers = Vec::with_capacity(questions.len() * samples);
    for (batch_number, batch) in questions.chunks((settings.batch / samples).max(1)).enumerate() {
        let rollouts = policy
            .sample(batch, &settings.sampling(), seed_of_step(seed, batch_number), &mut |_, _| ())
            .map_err(|source| EvaluateError { action: "answering the questions", source })?;
        let all_sentences = match scorers.as_deref_mut() {
            Some(scorers) if scorers.sentence_scorer.required_capabilities().is_empty() => {
                let rewards = RewardSettings {
                    compatibility: text.compatibility,
                    sentences: text.sentences,
                    language: text.language,
                    ..RewardSettings::default()
                };
                score_sentences(&rollouts, batch, scorers, &rewards).map_err(|error| {
                    EvaluateError { action: "scoring the answers", source: error.into() }
                })?
            }
            _ => vec![Vec::new(); rollouts.len()],
        };
        for (index, (rollout, sentences)) in rollouts.into_iter().zip(all_sentences).enumerate() {
            let Question { question, golds, popularity, .. } = &batch[rollout.question];
            let grade = rule.grade(&rollout.text, golds);
            let missing = (grade == Label::NotAttempted)
                .then(|| missing_answer(&rollout.text, rollout.finished, rule));
            let fact_check =
                facts.map(|facts| FactCheck::new(&split(&rollout.text, text).sentences, facts));
            answers.push(GradedAnswer {
                grade,
                missing,
                length: rollout.tokens.len(),
                question: question.clone(),
                sample: (samples > 1).then_some(index % samples),
                popularity: *popularity,
                fact_check,
                completion: rollout.text,
                sentences,
            });
        }
        progress(answers.len() / samples);
    }
    Ok((summarize(&answers, samples, text.compatibility), answers))
}

/// Returns the sentences of each completion with the verdicts of the run's rule. The run's response
/// rules are not called.
fn score_sentences(
    rollouts: &[Rollout],
    questions: &[Question],
    scorers: &mut Scorers<'_, '_>,
    rewards: &RewardSettings,
) -> Result<Vec<Vec<SentenceTrace>>, StepError> {
    let mut graders = Graders::default();
    let Scorers { extractor, backends, sentence_scorer, .. } = scorers;
    let mut sentence_scorers = Scorers {
        extractor: &mut **extractor,
        backends,
        sentence_scorer: &mut **sentence_scorer,
        graders: &mut graders,
    };
    let scored = score(rollouts, questions, &mut sentence_scorers, rewards)?;
    Ok(scored.completions.into_iter().map(|completion| completion.trace.sentences).collect())
}

/// Returns the figures of graded answers, of which there are `samples` per question.
#[must_use]
pub fn summarize(
    answers: &[GradedAnswer],
    samples: usize,
    compatibility: Compatibility,
) -> Evaluation {
    let mut grades = Grades::default();
    let mut formatted = 0;
    let mut tokens = 0;
    let mut counted = 0;
    let mut supported = 0;
    for answer in answers {
        grades.add(answer.grade);
        formatted += usize::from(keeps_format(&answer.completion, compatibility));
        tokens += answer.length;
        for sentence in &answer.sentences {
            if let Some(count) = sentence.verdict.as_ref().and_then(|verdict| verdict.count) {
                counted += 1;
                supported += usize::from(count > 0);
            }
        }
    }
    Evaluation {
        accuracy: grades.rate(grades.correct),
        pass_at: pass_at(answers, samples),
        incorrect_rate: grades.rate(grades.incorrect),
        not_attempted_rate: grades.rate(grades.not_attempted),
        refusal_rate: missing_rate(answers, MissingAnswer::Refused),
        cut_off_rate: missing_rate(answers, MissingAnswer::CutOff),
        unformatted_rate: missing_rate(answers, MissingAnswer::Unformatted),
        f1: grades.f1(),
        format_rate: ratio(formatted, answers.len()),
        supported_rate: (counted > 0).then(|| ratio(supported, counted)),
        counted_sentences: counted,
        true_sentences: mean_checked(answers, |check| check.truths),
        false_sentences: mean_checked(answers, |check| check.falsehoods),
        mean_length: ratio(tokens, answers.len()),
        grades,
    }
}

/// Returns `part` ÷ `total`; 0 if the total is 0.
fn ratio(part: usize, total: usize) -> f64 {
    if total == 0 { 0.0 } else { part as f64 / total as f64 }
}

/// Returns the share of answers that are missing for this reason.
fn missing_rate(answers: &[GradedAnswer], reason: MissingAnswer) -> f64 {
    let missing = answers.iter().filter(|answer| answer.missing == Some(reason)).count();
    ratio(missing, answers.len())
}

/// Returns the mean over the answers of a number of checked sentences; `None` if an answer was not
/// checked.
fn mean_checked(answers: &[GradedAnswer], number: fn(&FactCheck) -> usize) -> Option<f64> {
    let mut total = 0;
    for answer in answers {
        total += number(answer.fact_check.as_ref()?);
    }
    Some(ratio(total, answers.len()))
}

/// Returns pass@k for the powers of two up to `samples`; empty for one answer per question.
///
/// pass@k is the mean over the questions of 1 − C(n−c, k) / C(n, k), where c of n answers are
/// correct. Counting the first k answers would have more variance (Chen et al. 2021).
fn pass_at(answers: &[GradedAnswer], samples: usize) -> BTreeMap<usize, f64> {
    let mut pass_at = BTreeMap::new();
    if samples < 2 || answers.is_empty() {
        return pass_at;
    }
    let mut wrong = Vec::with_capacity(answers.len() / samples);
    for group in answers.chunks(samples) {
        let correct = group.iter().filter(|answer| answer.grade == Label::Good).count();
        wrong.push(samples - correct);
    }
    let mut k = 1;
    while k <= samples {
        let total: f64 = wrong.iter().map(|wrong| 1.0 - all_wrong(*wrong, samples, k)).sum();
        pass_at.insert(k, total / wrong.len() as f64);
        k *= 2;
    }
    pass_at
}

/// Returns the probability that `k` answers, drawn from `samples` without replacement, are all among
/// the `wrong` ones: C(wrong, k) / C(samples, k).
fn all_wrong(wrong: usize, samples: usize, k: usize) -> f64 {
    (0..k).map(|drawn| wrong.saturating_sub(drawn) as f64 / (samples - drawn) as f64).product()
}

#[cfg(test)]
mod tests {
    use corver_core::Sampling;

    use super::*;

    /// Answers Rome and Oslo in turns.
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
            let rollout = |n: usize| Rollout {
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
            Ok(many.map(rollout).collect())
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
        let plan = EvaluatePlan { settings, text: TextSettings::default(), facts: None, seed: 1 };
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

//! The learning-zone self-filter: selects the questions that a policy answers correctly sometimes but
//! not always (paper, App. self-filter).

use corver_core::response::AnswerRule;
use corver_core::{BoxError, Label, Question, Rollout, Sampler, Sampling, TextSettings};
use corver_data::QuestionRecord;
use corver_settings::FilterSettings;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use corver_runs::data_order::seed_of_step;
use corver_runs::{RunDir, RunDirError};

/// File of the sampled questions, one [`SampledQuestion`] per line.
pub const ANSWERED: &str = "answered.jsonl";
/// File of the selected questions, one per line, for a run to train on.
pub const RETAINED: &str = "questions.jsonl";

/// Difficulty of a question for a policy, by the number of correct answers among its samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Zone {
    /// No sample is correct.
    Zero,
    /// Some samples are correct, so that the advantages of a group are not 0.
    LearningZone,
    /// All samples are correct; the question may be selected as an anchor.
    Mastered,
}

impl Zone {
    /// Returns the zone of a question with `num_correct` correct answers among `num_samples`.
    #[must_use]
    pub fn new(num_correct: usize, num_samples: usize) -> Self {
        match num_correct {
            0 => Zone::Zero,
            n if n >= num_samples => Zone::Mastered,
            _ => Zone::LearningZone,
        }
    }
}

/// Settings of the filter.
#[derive(Debug, Clone, Copy)]
pub struct FilterPlan {
    /// Number of samples, and the range of correct ones that selects a question.
    pub settings: FilterSettings,
    /// Sampling of the answers: [`FilterSettings::sampling`].
    pub sampling: Sampling,
    /// Settings that decide how an answer is read.
    pub text: TextSettings,
    /// Seed of every draw.
    pub seed: u64,
}

/// Error of the filter.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// The policy could not be sampled. The earlier answers are saved.
    #[error("answering the questions from number {number} on")]
    Sample {
        /// Number of the batch's first question, counted from 1.
        number: usize,
        /// Error of the policy.
        source: BoxError,
    },
    /// The folder could not be read or written.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
}

/// A question with the number of correct answers among its samples.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampledQuestion {
    /// Number of the question, counted from 1. [`RunDir::rewind`] reads it.
    #[serde(rename = "step")]
    number: usize,
    question: String,
    num_correct: usize,
    zone: Zone,
}

/// A selected question, as `question.train` reads it.
#[derive(Serialize)]
struct SelectedQuestion<'a> {
    #[serde(flatten)]
    record: QuestionRecord<'a>,
    num_correct: usize,
}

/// Result of the filter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FilterSummary {
    /// Number of questions in the file.
    pub questions: usize,
    /// Number of selected questions, anchors included.
    pub retained: usize,
    /// Number of selected questions that are mastered.
    pub anchors: usize,
    /// Number of questions by the number of correct answers, from 0 on.
    pub by_num_correct: Vec<usize>,
}

/// Samples answers to every question, and writes [`ANSWERED`], [`RETAINED`] and the summary into the
/// folder. A selection without questions is not written: that of an earlier call remains. Continues if
/// an earlier call was interrupted. `progress` receives the number of questions answered so far.
///
/// # Errors
/// Fails if the policy fails or the folder cannot be written. The earlier answers are saved.
pub fn filter(
    policy: &mut dyn Sampler,
    questions: &[Question],
    plan: &FilterPlan,
    run: &RunDir,
    progress: &mut dyn FnMut(usize),
) -> Result<FilterSummary, FilterError> {
    let FilterPlan { settings, sampling, text, seed } = plan;
    let mut sampled = sampled_before(run, questions.len(), settings.batch)?;
    progress(sampled.len());
    for batch in questions[sampled.len()..].chunks(settings.batch) {
        let done = sampled.len();
        let batch_seed = seed_of_step(*seed, done / settings.batch);
        let rollouts = policy
            .sample(batch, sampling, batch_seed, &mut |_, _| ())
            .map_err(|source| FilterError::Sample { number: done + 1, source })?;
        let mut num_correct = vec![0; batch.len()];
        for rollout in &rollouts {
            let golds = &batch[rollout.question].golds;
            num_correct[rollout.question] += usize::from(is_correct(rollout, golds, *text));
        }
        for (index, question) in batch.iter().enumerate() {
            sampled.push(SampledQuestion {
                number: done + index + 1,
                question: question.question.clone(),
                num_correct: num_correct[index],
                zone: Zone::new(num_correct[index], sampling.num_generations),
            });
        }
        run.append(ANSWERED, &sampled[done..])?;
        progress(sampled.len());
    }

    let num_correct: Vec<usize> = sampled.iter().map(|question| question.num_correct).collect();
    let anchors = anchors(&num_correct, settings, *seed);
    let mut selected = Vec::new();
    let mut by_num_correct = vec![0; settings.num_generations + 1];
    for (index, question) in questions.iter().enumerate() {
        let num_correct = num_correct[index];
        by_num_correct[num_correct] += 1;
        if settings.keeps(num_correct) || anchors.contains(&index) {
            selected.push(SelectedQuestion { record: question.into(), num_correct });
        }
    }
    let summary = FilterSummary {
        questions: questions.len(),
        retained: selected.len(),
        anchors: anchors.len(),
        by_num_correct,
    };
    if !selected.is_empty() {
        run.write_lines(RETAINED, &selected)?;
        run.finish(&summary)?;
    }
    Ok(summary)
}

/// Returns the questions that an earlier call has sampled: all of them, or complete batches.
fn sampled_before(
    run: &RunDir,
    questions: usize,
    batch: usize,
) -> Result<Vec<SampledQuestion>, RunDirError> {
    run.rewind(ANSWERED, usize::MAX)?;
    let mut sampled: Vec<SampledQuestion> = run.read_lines(ANSWERED)?;
    if sampled.len() < questions {
        // The seed is a batch's, so that a part of one cannot be continued.
        sampled.truncate(sampled.len() / batch * batch);
        run.rewind(ANSWERED, sampled.len())?;
    }
    Ok(sampled)
}

fn is_correct(rollout: &Rollout, golds: &[String], text: TextSettings) -> bool {
    AnswerRule::of_training(text).grade(&rollout.text, golds) == Label::Good
}

/// Draws anchors among the mastered questions that are not selected anyway.
fn anchors(num_correct: &[usize], settings: &FilterSettings, seed: u64) -> Vec<usize> {
    let mut mastered = Vec::new();
    for (index, correct) in num_correct.iter().enumerate() {
        let zone = Zone::new(*correct, settings.num_generations);
        if zone == Zone::Mastered && !settings.keeps(*correct) {
            mastered.push(index);
        }
    }
    mastered.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    mastered.truncate(settings.anchors);
    mastered
}

#[cfg(test)]
mod tests {
    use corver_runs::RunManifest;

    use super::*;

    /// Answers every question correctly.
    struct Knows;

    impl Sampler for Knows {
        fn sample(
            &mut self,
            questions: &[Question],
            sampling: &Sampling,
            _: u64,
            _: &mut dyn FnMut(usize, &Rollout),
        ) -> Result<Vec<Rollout>, BoxError> {
            let rollout = |n: usize| Rollout {
                question: n / sampling.num_generations,
                text: "<answer>Rome</answer>".into(),
                tokens: Vec::new(),
                log_probs: Vec::new(),
                token_spans: Vec::new(),
                finished: true,
            };
            Ok((0..questions.len() * sampling.num_generations).map(rollout).collect())
        }
    }

    #[test]
    fn selection_without_questions_leaves_the_earlier_one() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDir::create(folder.path(), "", &RunManifest::default()).unwrap();
        let golds = vec!["Rome".into()];
        let questions = [Question { question: "q".into(), golds, ..Question::default() }];
        let select = |num_correct: usize| {
            let settings = FilterSettings {
                num_generations: 2,
                min_correct: num_correct,
                max_correct: Some(num_correct),
                ..FilterSettings::default()
            };
            let sampling = settings.sampling(Sampling::default());
            let plan = FilterPlan { settings, sampling, text: TextSettings::default(), seed: 1 };
            filter(&mut Knows, &questions, &plan, &run, &mut |_| ()).unwrap().retained
        };
        let written = || {
            let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
            (read(RETAINED), read("summary.json"))
        };
        assert_eq!(select(2), 1);
        let before = written();
        assert_eq!(select(1), 0);
        assert_eq!(written(), before);
    }

    #[test]
    fn learning_zone_excludes_zero_and_all_correct() {
        let settings = FilterSettings::default();
        assert_eq!([0, 1, 15, 16].map(|n| settings.keeps(n)), [false, true, true, false]);
        assert_eq!(
            [0, 1, 16].map(|n| Zone::new(n, 16)),
            [Zone::Zero, Zone::LearningZone, Zone::Mastered]
        );
    }

    #[test]
    fn anchors_are_mastered_questions_drawn_by_the_seed() {
        let of = |anchors, seed| {
            let settings = FilterSettings { anchors, ..FilterSettings::default() };
            super::anchors(&[16, 0, 16, 5, 16, 16, 16, 16], &settings, seed)
        };
        assert!(of(0, 1).is_empty());
        assert_eq!(of(3, 1), of(3, 1));
        assert!((0..20).any(|seed| of(3, seed) != of(3, 1)));
        let mut all = of(99, 1);
        all.sort_unstable();
        assert_eq!(all, [0, 2, 4, 5, 6, 7]);
    }
}

//! The learning-zone self-filter: which questions can teach a policy anything (paper, App.
//! self-filter).

use corver_core::response::AnswerRule;
use corver_core::{BoxError, Compatibility, Label, Question, Rollout, Sampler, Sampling};
use corver_data::QuestionRecord;
use corver_settings::FilterSettings;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use corver_runs::data_order::seed_of_step;
use corver_runs::{RunDir, RunDirError};

/// What every question was found to be, a line each: an `Answered`, with the number of the
/// question as `step`.
pub const ANSWERED: &str = "answered.jsonl";
/// The questions that are kept, a line each: what a run trains on.
pub const KEPT: &str = "questions.jsonl";

/// How well a policy answers a question, by the number of right answers among its samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Zone {
    /// Never right.
    Zero,
    /// Sometimes right: a group has spread, and its advantages say something.
    LearningZone,
    /// Always right; may be mixed in as an anchor.
    Mastered,
}

impl Zone {
    /// The zone of a question that was answered right `num_correct` times out of `num_samples`.
    #[must_use]
    pub fn of(num_correct: usize, num_samples: usize) -> Self {
        match num_correct {
            0 => Zone::Zero,
            n if n >= num_samples => Zone::Mastered,
            _ => Zone::LearningZone,
        }
    }
}

/// What a filtering does.
#[derive(Debug, Clone, Copy)]
pub struct FilterPlan {
    /// How questions are tried, and which are kept.
    pub settings: FilterSettings,
    /// How samples are drawn: [`FilterSettings::sampling`].
    pub sampling: Sampling,
    /// Whose grader: that of [`AnswerRule::of_training`].
    pub compatibility: Compatibility,
    /// Decides every draw.
    pub seed: u64,
}

/// Why a filtering stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// The policy could not be sampled. What was answered before is kept.
    #[error("answering the questions from number {number} on")]
    Sample {
        /// Of the batch's first question, counted from 1.
        number: usize,
        /// Why.
        source: BoxError,
    },
    /// The folder could not be written.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
}

/// One question, tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Answered {
    step: usize,
    question: String,
    num_correct: usize,
    zone: Zone,
}

/// A question that is kept, as `question.train` reads it.
#[derive(Serialize)]
struct Kept<'a> {
    #[serde(flatten)]
    record: QuestionRecord<'a>,
    num_correct: usize,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Filtered {
    /// Those of the file.
    pub questions: usize,
    /// Those that are kept, anchors included.
    pub kept: usize,
    /// Those that are kept though they were always answered right.
    pub anchors: usize,
    /// Questions by the number of right answers, from 0 on.
    pub by_num_correct: Vec<usize>,
}

/// Tries every question with the policy and writes [`ANSWERED`], [`KEPT`] and the summary into the
/// folder; goes on where an earlier call was broken off. `progress` is given the number of
/// questions that have been answered.
///
/// # Errors
/// Where the policy fails or the folder cannot be written. The questions answered before stay
/// answered.
pub fn filter(
    policy: &mut dyn Sampler,
    questions: &[Question],
    plan: &FilterPlan,
    run: &RunDir,
    progress: &mut dyn FnMut(usize),
) -> Result<Filtered, FilterError> {
    let FilterPlan { settings, sampling, compatibility, seed } = plan;
    let mut answered = earlier(run, questions.len(), settings.batch)?;
    progress(answered.len());
    for batch in questions[answered.len()..].chunks(settings.batch) {
        let done = answered.len();
        let sampled = policy.sample(
            batch,
            sampling,
            seed_of_step(*seed, done / settings.batch),
            &mut |_, _| (),
        );
        let rollouts =
            sampled.map_err(|source| FilterError::Sample { number: done + 1, source })?;
        answered.extend(batch.iter().enumerate().map(|(n, question)| {
            let own = rollouts.iter().filter(|rollout| rollout.question == n);
            let num_correct =
                own.filter(|rollout| is_right(rollout, &question.golds, *compatibility)).count();
            let zone = Zone::of(num_correct, sampling.num_generations);
            Answered { step: done + n + 1, question: question.question.clone(), num_correct, zone }
        }));
        run.append(ANSWERED, &answered[done..])?;
        progress(answered.len());
    }

    let num_correct: Vec<usize> = answered.iter().map(|answered| answered.num_correct).collect();
    let anchors = anchors(&num_correct, settings, *seed);
    let kept: Vec<Kept<'_>> = questions
        .iter()
        .zip(&num_correct)
        .enumerate()
        .filter(|(n, (_, num_correct))| settings.keeps(**num_correct) || anchors.contains(n))
        .map(|(_, (question, &num_correct))| Kept { record: question.into(), num_correct })
        .collect();
    run.write_lines(KEPT, &kept)?;
    let mut by_num_correct = vec![0; settings.num_generations + 1];
    num_correct.iter().for_each(|&n| by_num_correct[n] += 1);
    let filtered = Filtered {
        questions: questions.len(),
        kept: kept.len(),
        anchors: anchors.len(),
        by_num_correct,
    };
    run.finish(&filtered)?;
    Ok(filtered)
}

/// What an earlier call has found: all of it, or whole batches.
fn earlier(run: &RunDir, questions: usize, batch: usize) -> Result<Vec<Answered>, RunDirError> {
    run.rewind(ANSWERED, usize::MAX)?;
    let mut answered: Vec<Answered> = run.read_lines(ANSWERED)?;
    if answered.len() < questions {
        answered.truncate(answered.len() / batch * batch);
        run.rewind(ANSWERED, answered.len())?;
    }
    Ok(answered)
}

fn is_right(rollout: &Rollout, golds: &[String], compatibility: Compatibility) -> bool {
    AnswerRule::of_training(compatibility).grade(&rollout.text, golds) == Label::Good
}

/// Draws anchors among the mastered questions that are not kept anyway.
fn anchors(num_correct: &[usize], settings: &FilterSettings, seed: u64) -> Vec<usize> {
    let is_mastered = |&n: &usize| {
        Zone::of(num_correct[n], settings.num_generations) == Zone::Mastered
            && !settings.keeps(num_correct[n])
    };
    let mut mastered: Vec<usize> = (0..num_correct.len()).filter(is_mastered).collect();
    mastered.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    mastered.truncate(settings.anchors);
    mastered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learning_zone_excludes_zero_and_all_correct() {
        let settings = FilterSettings::default();
        assert_eq!([0, 1, 15, 16].map(|n| settings.keeps(n)), [false, true, true, false]);
        assert_eq!(
            [0, 1, 16].map(|n| Zone::of(n, 16)),
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

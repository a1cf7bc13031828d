//! Comparison of two policies on the same questions: differences, intervals and tests.

use std::path::Path;

use corver_core::Label;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use statrs::distribution::{Binomial, DiscreteCDF};

use super::grade::Grades;
use super::graded::read_graded;
use super::interval::{DRAWS, percentile_interval};
use super::lines::LinesError;

/// Error of a comparison.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiffError {
    /// A file of answers cannot be read.
    #[error(transparent)]
    Graded(#[from] LinesError),
    /// The answers cannot be compared; the message says why.
    #[error("{0}")]
    NotComparable(String),
}

/// The fields of a [`super::GradedAnswer`] that a comparison reads.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ComparedAnswer {
    /// Text of the question.
    pub question: String,
    /// Grade of the answer.
    pub grade: Label,
    /// Popularity of the question's subject: see [`corver_core::Question::popularity`].
    pub popularity: Option<u64>,
    /// Index among the samples of its question: see [`super::GradedAnswer::sample`].
    pub sample: Option<usize>,
}

/// Reads a file of graded answers, one per line and question.
///
/// # Errors
/// Fails if the file cannot be read, a line is no answer, or a question has several samples.
pub fn read_answers(path: &Path) -> Result<Vec<ComparedAnswer>, DiffError> {
    let answers: Vec<ComparedAnswer> = read_graded(path)?;
    if let Some(index) = answers.iter().position(|answer| answer.sample.is_some()) {
        return Err(DiffError::NotComparable(format!(
            "{}:{}: the answers are samples, several per question; `eval` without --samples \
             writes answers that can be compared",
            path.display(),
            index + 1
        )));
    }
    Ok(answers)
}

/// Difference of a figure, second minus first, with a 95 % interval of the paired bootstrap.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Difference {
    /// Difference on all questions.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// McNemar's exact test of the questions that only one policy answered correctly. The null hypothesis
/// is that they split evenly.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct McNemar {
    /// Questions that only the first answered correctly.
    pub only_first: u64,
    /// Questions that only the second answered correctly.
    pub only_second: u64,
    /// Two-sided p-value, 0 to 1.
    pub p: f64,
}

impl McNemar {
    fn new(only_first: u64, only_second: u64) -> Self {
        let fair = Binomial::new(0.5, only_first + only_second).expect("0.5 is a probability");
        let p = (2.0 * fair.cdf(only_first.min(only_second))).min(1.0);
        Self { only_first, only_second, p }
    }
}

/// Answers of the second policy to the questions that the first did not attempt (paper, “Refusal-Rate
/// Decomposition”).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Refusals {
    /// Share of all questions that the first did not attempt.
    pub first: f64,
    /// Share of all questions that the second did not attempt.
    pub second: f64,
    /// Questions that the first did not attempt and the second did.
    pub attempted: usize,
    /// Number of these that the second answered correctly.
    pub correct: usize,
    /// Share of correct answers among the attempted ones. `None`: none was attempted.
    pub subset_correct: Option<f64>,
}

impl Refusals {
    /// Computes the decomposition from the grades of all questions and [`Diff::moves`].
    fn new([first, second]: [Grades; 2], moves: &[[usize; 3]; 3]) -> Self {
        let [correct, incorrect, _] = moves[Label::NotAttempted as usize];
        let attempted = correct + incorrect;
        Self {
            first: first.rate(first.not_attempted),
            second: second.rate(second.not_attempted),
            attempted,
            correct,
            subset_correct: (attempted > 0).then(|| correct as f64 / attempted as f64),
        }
    }
}

/// Questions of similar popularity.
///
/// Quarters are split at values: the popularity of the question at each quarter of the ranking. All
/// questions with that popularity are in the upper quarter. So equally popular questions stay
/// together, and the quarters differ somewhat in size. In the paper's table, too, the first has 3,257
/// of 13,066 questions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PopularityGroup {
    /// Quarter from 1, the least popular, to 4. `None`: all questions whose popularity is known.
    pub quarter: Option<usize>,
    /// Lowest popularity in the group.
    pub from: u64,
    /// Highest popularity in the group.
    pub to: u64,
    /// Grades of the first and of the second policy.
    pub grades: [Grades; 2],
    /// Difference of the accuracy.
    pub accuracy: Difference,
}

/// Comparison of two evaluations.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Diff {
    /// Grades of the first and of the second policy.
    pub grades: [Grades; 2],
    /// Difference of the accuracy.
    pub accuracy: Difference,
    /// Difference of F1: see [`Grades::f1`].
    pub f1: Difference,
    /// Difference of the share that was not attempted.
    pub not_attempted: Difference,
    /// Test of the correct answers.
    pub mcnemar: McNemar,
    /// Questions that the first did not attempt.
    pub refusals: Refusals,
    /// Number of questions by the first's grade, then the second's: correct, incorrect, not attempted.
    pub moves: [[usize; 3]; 3],
    /// Non-empty quarters, the least popular first, then all. Empty if no question has a popularity.
    pub by_popularity: Vec<PopularityGroup>,
}

/// Compares the answers to the same questions, in the same order. `seed` decides the draws of the
/// bootstrap.
///
/// # Errors
/// Fails if the questions differ, or there are none.
pub fn diff(
    first: &[ComparedAnswer],
    second: &[ComparedAnswer],
    seed: u64,
) -> Result<Diff, DiffError> {
    let mut pairs = Vec::with_capacity(first.len());
    let mut moves = [[0; 3]; 3];
    let mut only_first = 0;
    let mut only_second = 0;
    for (index, (before, after)) in first.iter().zip(second).enumerate() {
        if before.question != after.question {
            return Err(DiffError::NotComparable(format!(
                "line {} answers {:?} in the first file and {:?} in the second; \
                 only answers to the same questions compare",
                index + 1,
                before.question,
                after.question
            )));
        }
        pairs.push([before.grade, after.grade]);
        moves[before.grade as usize][after.grade as usize] += 1;
        match (before.grade == Label::Good, after.grade == Label::Good) {
            (true, false) => only_first += 1,
            (false, true) => only_second += 1,
            (true, true) | (false, false) => {}
        }
    }
    if first.len() != second.len() {
        return Err(DiffError::NotComparable(format!(
            "the first file has {} answers, the second {}; \
             only answers to the same questions compare",
            first.len(),
            second.len()
        )));
    }
    if first.is_empty() {
        return Err(DiffError::NotComparable("there are no answers to compare".to_owned()));
    }
    // All figures share the draws of the bootstrap.
    let draws = draws(&pairs, seed);
    Ok(Diff {
        grades: grades(&pairs),
        accuracy: difference(&pairs, &draws, accuracy),
        f1: difference(&pairs, &draws, Grades::f1),
        not_attempted: difference(&pairs, &draws, |grades| grades.rate(grades.not_attempted)),
        mcnemar: McNemar::new(only_first, only_second),
        refusals: Refusals::new(grades(&pairs), &moves),
        moves,
        by_popularity: by_popularity(first, &pairs, seed),
    })
}

/// Returns the number of answers with each grade, of the first and of the second policy.
fn grades<'a>(pairs: impl IntoIterator<Item = &'a [Label; 2]>) -> [Grades; 2] {
    let mut grades = [Grades::default(); 2];
    for [before, after] in pairs {
        grades[0].add(*before);
        grades[1].add(*after);
    }
    grades
}

/// Returns the grades of each bootstrap draw: as many questions, drawn with replacement.
fn draws(pairs: &[[Label; 2]], seed: u64) -> Vec<[Grades; 2]> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..DRAWS)
        .map(|_| grades((0..pairs.len()).map(|_| &pairs[rng.random_range(0..pairs.len())])))
        .collect()
}

fn accuracy(grades: &Grades) -> f64 {
    grades.rate(grades.correct)
}

/// Returns the difference of a figure on all questions, with the interval of its draws.
fn difference(
    pairs: &[[Label; 2]],
    draws: &[[Grades; 2]],
    figure: fn(&Grades) -> f64,
) -> Difference {
    let value = |[first, second]: &[Grades; 2]| figure(second) - figure(first);
    let (low, high) =
        percentile_interval(draws.iter().map(value).collect()).expect("a bootstrap has draws");
    Difference { value: value(&grades(pairs)), low, high }
}

/// Groups the questions whose popularity is known by quarters of the ranking.
fn by_popularity(
    answers: &[ComparedAnswer],
    pairs: &[[Label; 2]],
    seed: u64,
) -> Vec<PopularityGroup> {
    let mut known: Vec<(u64, [Label; 2])> = Vec::new();
    for (answer, pair) in answers.iter().zip(pairs) {
        if let Some(popularity) = answer.popularity {
            known.push((popularity, *pair));
        }
    }
    if known.is_empty() {
        return Vec::new();
    }
    known.sort_by_key(|(popularity, _)| *popularity);
    let cuts = [1, 2, 3].map(|quarter| known[quarter * known.len() / 4].0);
    let quarter_of = |popularity: u64| 1 + cuts.iter().filter(|cut| popularity >= **cut).count();
    let mut groups: Vec<PopularityGroup> = known
        .chunk_by(|one, next| quarter_of(one.0) == quarter_of(next.0))
        .map(|quarter| popularity_group(Some(quarter_of(quarter[0].0)), quarter, seed))
        .collect();
    groups.push(popularity_group(None, &known, seed));
    groups
}

/// Compares a group of questions. `known` is not empty, and is sorted by popularity.
fn popularity_group(
    quarter: Option<usize>,
    known: &[(u64, [Label; 2])],
    seed: u64,
) -> PopularityGroup {
    let pairs: Vec<[Label; 2]> = known.iter().map(|(_, pair)| *pair).collect();
    PopularityGroup {
        quarter,
        from: known[0].0,
        to: known[known.len() - 1].0,
        grades: grades(&pairs),
        accuracy: difference(&pairs, &draws(&pairs, seed), accuracy),
    }
}

#[cfg(test)]
mod tests {
    use super::Label::{Bad, Good, NotAttempted};
    use super::*;

    fn answers(grades: &[Label]) -> Vec<ComparedAnswer> {
        let answer = |(n, &grade): (usize, &Label)| ComparedAnswer {
            question: format!("q{n}"),
            grade,
            popularity: 100u64.checked_sub(n as u64),
            sample: None,
        };
        grades.iter().enumerate().map(answer).collect()
    }

    #[test]
    fn mcnemar_equals_sign_test_of_discordant_answers() {
        assert_eq!(McNemar::new(0, 0).p, 1.0);
        assert_eq!(McNemar::new(3, 3).p, 1.0);
        assert!((McNemar::new(0, 6).p - 2.0 / 64.0).abs() < 1e-12);
        assert!((McNemar::new(8, 1).p - 2.0 * 10.0 / 512.0).abs() < 1e-12);
        assert_eq!(McNemar::new(8, 1).p, McNemar::new(1, 8).p);
    }

    #[test]
    fn diff_counts_grade_moves_and_refusals() {
        let first = answers(&[Good, Good, NotAttempted, Bad, NotAttempted, Bad, Good, Good]);
        let second = answers(&[Good, Bad, Good, Good, Bad, Bad, Good, Good]);
        let diff = diff(&first, &second, 1).unwrap();
        assert_eq!(diff.moves, [[3, 1, 0], [1, 1, 0], [1, 1, 0]]);
        assert_eq!((diff.mcnemar.only_first, diff.mcnemar.only_second), (1, 2));
        // Of two refusals one became a right answer, one a wrong one.
        let refusals = Refusals {
            first: 2.0 / 8.0,
            second: 0.0,
            attempted: 2,
            correct: 1,
            subset_correct: Some(0.5),
        };
        assert_eq!(diff.refusals, refusals);
        assert!((diff.accuracy.value - 1.0 / 8.0).abs() < 1e-12);
        assert!((diff.not_attempted.value + 2.0 / 8.0).abs() < 1e-12);
        assert!(
            diff.accuracy.low < diff.accuracy.value && diff.accuracy.value < diff.accuracy.high
        );
        let ranges: Vec<_> =
            diff.by_popularity.iter().map(|group| (group.quarter, group.from, group.to)).collect();
        let quarters =
            [(Some(1), 93, 94), (Some(2), 95, 96), (Some(3), 97, 98), (Some(4), 99, 100)];
        assert_eq!(ranges[..4], quarters, "the last question is the least popular one");
        assert_eq!(ranges[4..], [(None, 93, 100)]);
        // Questions 3 and 4: nobody right, then both.
        assert_eq!(diff.by_popularity[2].grades.map(|grades| grades.correct), [0, 2]);
        let differences: Vec<f64> =
            diff.by_popularity.iter().map(|group| group.accuracy.value).collect();
        assert_eq!(differences, [0.0, 0.0, 1.0, -0.5, 0.125]);
        assert_eq!(diff.by_popularity[4].accuracy, diff.accuracy);
    }

    #[test]
    fn refusal_subset_needs_second_policy_to_attempt() {
        let first = answers(&[NotAttempted, Good, NotAttempted, NotAttempted]);
        let second = answers(&[NotAttempted, NotAttempted, Good, Bad]);
        let Refusals { first, second, attempted, correct, subset_correct } =
            diff(&first, &second, 1).unwrap().refusals;
        assert_eq!(
            (first, second, attempted, correct, subset_correct),
            (0.75, 0.5, 2, 1, Some(0.5))
        );
        let none = answers(&[Good, Bad]);
        assert_eq!(diff(&none, &none, 1).unwrap().refusals.subset_correct, None);
    }

    #[test]
    fn equally_popular_questions_stay_together() {
        let sizes = |popularity: [Option<u64>; 8]| -> Vec<(Option<usize>, u64, u64, usize)> {
            let mut answers = answers(&[Good; 8]);
            answers
                .iter_mut()
                .zip(popularity)
                .for_each(|(answer, popularity)| answer.popularity = popularity);
            let groups = diff(&answers, &answers, 1).unwrap().by_popularity;
            groups
                .iter()
                .map(|group| (group.quarter, group.from, group.to, group.grades[0].total()))
                .collect()
        };
        assert_eq!(sizes([Some(5); 8]), [(Some(4), 5, 5, 8), (None, 5, 5, 8)]);
        // Cut at the third, fifth and seventh of them: 2, 2 and 4.
        let tied = [2, 9, 2, 1, 4, 2, 3, 2].map(Some);
        let expected =
            [(Some(1), 1, 1, 1), (Some(3), 2, 3, 5), (Some(4), 4, 9, 2), (None, 1, 9, 8)];
        assert_eq!(sizes(tied), expected);
        assert_eq!(sizes([None; 8]), []);
        assert_eq!(
            sizes([None, None, None, Some(7), None, None, None, None]),
            [(Some(4), 7, 7, 1), (None, 7, 7, 1)]
        );
    }

    #[test]
    fn accuracy_interval_narrows_with_more_questions() {
        let width = |times: usize| {
            let [first, second] = [[Good, Bad, Bad, Good], [Good, Good, Bad, Bad]];
            let accuracy = diff(&answers(&first.repeat(times)), &answers(&second.repeat(times)), 1)
                .unwrap()
                .accuracy;
            assert!(accuracy.low < 0.0 && accuracy.high > 0.0, "{accuracy:?}");
            accuracy.high - accuracy.low
        };
        // The standard deviation of a paired difference is √½ here.
        let expected = |questions: f64| 2.0 * 1.96 * (0.5 / questions).sqrt();
        for times in [25, 100] {
            let ratio = width(times) / expected(4.0 * times as f64);
            assert!((0.9..1.1).contains(&ratio), "{times}: {ratio}");
        }
    }

    #[test]
    fn diff_rejects_different_question_sets() {
        let two = answers(&[Good, Bad]);
        let mut other = two.clone();
        other[1].question = "?".into();
        let refusal = |first, second| diff(first, second, 1).unwrap_err().to_string();
        assert!(refusal(&two, &other).starts_with("line 2 answers"));
        let shorter = refusal(&two, &two[..1]);
        assert!(shorter.starts_with("the first file has 2 answers, the second 1"), "{shorter}");
        assert_eq!(refusal(&[], &[]), "there are no answers to compare");
    }
}

//! Two policies on the same questions: is the difference more than chance?

use std::path::Path;

use corver_core::Label;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use statrs::distribution::{Binomial, DiscreteCDF};

use super::grade::Grades;
use super::graded::{GradedError, read_graded};

/// Draws of the bootstrap.
const DRAWS: usize = 2_000;
/// An interval leaves out this share of the draws on either side.
const TAIL: f64 = 0.025;

/// Why two evaluations cannot be compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiffError {
    /// The answers cannot be read.
    #[error(transparent)]
    Graded(#[from] GradedError),
    /// The answers do not compare; the message says why.
    #[error("{0}")]
    NotComparable(String),
}

/// What a comparison needs of a [`super::GradedAnswer`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Answer {
    /// What was asked.
    pub question: String,
    /// What the answer was judged to be.
    pub grade: Label,
    /// See [`corver_core::Question::popularity`].
    pub popularity: Option<u64>,
    /// See [`super::GradedAnswer::sample`].
    pub sample: Option<usize>,
}

/// Reads graded answers, one a line.
///
/// # Errors
/// A file that cannot be read, or a line that is no answer.
pub fn read_answers(path: &Path) -> Result<Vec<Answer>, DiffError> {
    let answers: Vec<Answer> = read_graded(path)?;
    match answers.iter().position(|answer| answer.sample.is_some()) {
        Some(drawn) => Err(DiffError::NotComparable(format!(
            "{}:{}: the answers are drawn ones, several to a question; `eval` without --samples writes \
             what compares",
            path.display(),
            drawn + 1
        ))),
        None => Ok(answers),
    }
}

/// Second minus first, with a 95 % interval of the paired bootstrap.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Difference {
    /// Of all questions.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// McNemar's exact test: are the questions that one alone got right split evenly?
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct McNemar {
    /// Questions that the first alone got right.
    pub only_first: u64,
    /// Questions that the second alone got right.
    pub only_second: u64,
    /// Two-sided.
    pub p: f64,
}

impl McNemar {
    fn of(only_first: u64, only_second: u64) -> Self {
        let fair = Binomial::new(0.5, only_first + only_second).expect("0.5 is a probability");
        let p = (2.0 * fair.cdf(only_first.min(only_second))).min(1.0);
        Self { only_first, only_second, p }
    }
}

/// What became of the questions that the first did not attempt (paper, “Refusal-Rate
/// Decomposition”).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Refusals {
    /// Share of all questions that the first did not attempt.
    pub first: f64,
    /// Share of all questions that the second did not attempt.
    pub second: f64,
    /// Questions that the first did not attempt and the second did.
    pub attempted: usize,
    /// Those of them that the second got right.
    pub correct: usize,
    /// Share of right answers among those; `None` where there are none.
    pub subset_correct: Option<f64>,
}

impl Refusals {
    /// Returns the decomposition by grades of all questions, and moves as in [`Diff::moves`].
    fn of([first, second]: [Grades; 2], moves: &[[usize; 3]; 3]) -> Self {
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
/// Quarters are cut at values: the popularity of the question at each quarter of the ranking.
/// Whoever has that popularity is in the upper quarter, so that equally popular questions are never
/// parted, and quarters are of about the same size only. In the paper's table, too, the first has
/// 3,257 of 13,066 questions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PopularityGroup {
    /// From 1, the least popular quarter, to 4; `None`: all questions whose popularity is known.
    pub quarter: Option<usize>,
    /// Lowest popularity in it.
    pub from: u64,
    /// Highest popularity in it.
    pub to: u64,
    /// Of the first and of the second.
    pub grades: [Grades; 2],
    /// Of the share of right answers.
    pub accuracy: Difference,
}

/// Two evaluations side by side.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Diff {
    /// Of the first and of the second.
    pub grades: [Grades; 2],
    /// Of the share of right answers.
    pub accuracy: Difference,
    /// See [`Grades::f1`].
    pub f1: Difference,
    /// Of the share that was not attempted.
    pub not_attempted: Difference,
    /// On right answers.
    pub mcnemar: McNemar,
    /// Of the questions that the first did not attempt.
    pub refusals: Refusals,
    /// Questions by the first's grade, then the second's: correct, incorrect, not attempted.
    pub moves: [[usize; 3]; 3],
    /// Quarters, the least popular first, without empty ones; then all. Empty where no question has
    /// a popularity.
    pub by_popularity: Vec<PopularityGroup>,
}

/// Compares the answers to the same questions, in the same order. `seed` decides the draws of the
/// bootstrap.
///
/// # Errors
/// Where the questions differ, or there are none.
pub fn diff(first: &[Answer], second: &[Answer], seed: u64) -> Result<Diff, DiffError> {
    let other =
        first.iter().zip(second).position(|(first, second)| first.question != second.question);
    if let Some(n) = other {
        let [in_first, in_second] = [first, second].map(|answers| answers[n].question.clone());
        return Err(DiffError::NotComparable(format!(
            "line {} answers {in_first:?} in the first file and {in_second:?} in the second; only answers to \
             the same questions compare",
            n + 1
        )));
    }
    if first.len() != second.len() {
        return Err(DiffError::NotComparable(format!(
            "the first file has {} answers, the second {}; only answers to the same questions compare",
            first.len(),
            second.len()
        )));
    }
    if first.is_empty() {
        return Err(DiffError::NotComparable("there are no answers to compare".to_owned()));
    }
    let pairs: Vec<[Label; 2]> =
        first.iter().zip(second).map(|(first, second)| [first.grade, second.grade]).collect();
    let mut moves = [[0; 3]; 3];
    pairs.iter().for_each(|&[before, after]| moves[before as usize][after as usize] += 1);
    let draws = draws(&pairs, seed);
    let difference = |of: fn(&Grades) -> f64| difference(&pairs, &draws, of);
    let right_in_one = |right: usize| {
        let alone =
            |pair: &&[Label; 2]| pair[right] == Label::Good && pair[1 - right] != Label::Good;
        pairs.iter().filter(alone).count() as u64
    };
    Ok(Diff {
        grades: grades(&pairs),
        accuracy: difference(accuracy),
        f1: difference(Grades::f1),
        not_attempted: difference(|grades| grades.rate(grades.not_attempted)),
        mcnemar: McNemar::of(right_in_one(0), right_in_one(1)),
        refusals: Refusals::of(grades(&pairs), &moves),
        moves,
        by_popularity: by_popularity(first, &pairs, seed),
    })
}

fn grades<'a>(pairs: impl IntoIterator<Item = &'a [Label; 2]>) -> [Grades; 2] {
    let mut both = [Grades::default(); 2];
    for pair in pairs {
        both.iter_mut().zip(pair).for_each(|(grades, label)| grades.add(*label));
    }
    both
}

/// The grades of as many questions, drawn with replacement, again and again.
fn draws(pairs: &[[Label; 2]], seed: u64) -> Vec<[Grades; 2]> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..DRAWS)
        .map(|_| grades((0..pairs.len()).map(|_| &pairs[rng.random_range(0..pairs.len())])))
        .collect()
}

fn accuracy(grades: &Grades) -> f64 {
    grades.rate(grades.correct)
}

fn difference(pairs: &[[Label; 2]], draws: &[[Grades; 2]], of: fn(&Grades) -> f64) -> Difference {
    let value = |[first, second]: &[Grades; 2]| of(second) - of(first);
    let mut drawn: Vec<f64> = draws.iter().map(value).collect();
    drawn.sort_by(f64::total_cmp);
    let cut = (TAIL * DRAWS as f64) as usize;
    Difference { value: value(&grades(pairs)), low: drawn[cut], high: drawn[DRAWS - 1 - cut] }
}

fn by_popularity(answers: &[Answer], pairs: &[[Label; 2]], seed: u64) -> Vec<PopularityGroup> {
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

/// `known` has at least one question, and is in the order of popularity.
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

    fn answers(grades: &[Label]) -> Vec<Answer> {
        let answer = |(n, &grade): (usize, &Label)| Answer {
            question: format!("q{n}"),
            grade,
            popularity: 100u64.checked_sub(n as u64),
            sample: None,
        };
        grades.iter().enumerate().map(answer).collect()
    }

    #[test]
    fn mcnemar_equals_sign_test_of_discordant_answers() {
        assert_eq!(McNemar::of(0, 0).p, 1.0);
        assert_eq!(McNemar::of(3, 3).p, 1.0);
        assert!((McNemar::of(0, 6).p - 2.0 / 64.0).abs() < 1e-12);
        assert!((McNemar::of(8, 1).p - 2.0 * 10.0 / 512.0).abs() < 1e-12);
        assert_eq!(McNemar::of(8, 1).p, McNemar::of(1, 8).p);
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

//! Are true sentences paid more than false ones? Statistics of rewards and truths.

use std::collections::BTreeSet;
use std::fmt;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

/// Draws of the bootstrap.
const DRAWS: usize = 2_000;
/// An interval leaves out this share of the draws on either side.
const TAIL: f64 = 0.025;

/// True sentences, and as many false ones, below which nothing is concluded.
///
/// With 30 of each, an AUC of one half has a standard error of √(61 / (12 · 30 · 30)) = 0.075
/// (Mann–Whitney), so an interval of ±0.15. The paper's 700 labels give its rule an AUC of 0.754:
/// with fewer sentences not even that could be told from chance.
pub const MIN_SENTENCES: usize = 30;
/// Questions that these must come from, the true ones and the false ones each. The interval draws
/// questions: among fewer, the draws are too much alike, and the interval is too narrow.
pub const MIN_QUESTIONS: usize = 10;

/// What one sentence earned, and whether it is true.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// Sentences of one question are not independent of each other.
    pub question: usize,
    /// Finite.
    pub reward: f32,
    /// All that it states.
    pub is_true: bool,
}

/// The probability that a true sentence earns more than a false one, ties counted half: the area
/// under the ROC curve, or Mann–Whitney's U as a share of all pairs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Auc {
    /// Of all pairs.
    pub value: f64,
    /// `None` where there is too little to conclude anything: [`Evidence::is_enough`].
    pub interval: Option<Interval>,
}

/// A 95 % interval of the bootstrap: questions are drawn with replacement, each with all its
/// sentences.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl fmt::Display for Auc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.interval {
            Some(Interval { low, high }) => write!(f, "{:.3} ({low:.3} to {high:.3})", self.value),
            None => write!(f, "{:.3} (too few)", self.value),
        }
    }
}

/// The sentences that a comparison rests on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// True sentences.
    pub truths: usize,
    /// Questions that they answer.
    pub questions_with_truths: usize,
    /// False sentences.
    pub falsehoods: usize,
    /// Questions that they answer.
    pub questions_with_falsehoods: usize,
}

impl Evidence {
    /// Returns how many sentences there are, and of how many questions.
    #[must_use]
    pub fn of(outcomes: &[Outcome]) -> Self {
        let [mut of_truths, mut of_falsehoods] = [BTreeSet::new(), BTreeSet::new()];
        let mut evidence = Self::default();
        for outcome in outcomes {
            if outcome.is_true {
                evidence.truths += 1;
                of_truths.insert(outcome.question);
            } else {
                evidence.falsehoods += 1;
                of_falsehoods.insert(outcome.question);
            }
        }
        evidence.questions_with_truths = of_truths.len();
        evidence.questions_with_falsehoods = of_falsehoods.len();
        evidence
    }

    /// Returns whether that is enough for an interval and a verdict: [`MIN_SENTENCES`] and
    /// [`MIN_QUESTIONS`].
    #[must_use]
    pub fn is_enough(&self) -> bool {
        self.truths.min(self.falsehoods) >= MIN_SENTENCES
            && self.questions_with_truths.min(self.questions_with_falsehoods) >= MIN_QUESTIONS
    }
}

/// False and true sentences of each reward, lowest first.
struct Ranking {
    outcomes: Vec<Outcome>,
    /// Of each outcome, the place of its reward.
    levels: Vec<usize>,
    num_levels: usize,
}

/// `[false, true]` of each reward.
type Histogram = Vec<[u64; 2]>;

impl Ranking {
    fn of(outcomes: &[Outcome]) -> Self {
        let mut outcomes = outcomes.to_vec();
        outcomes.sort_by_key(|outcome| outcome.question);
        let mut rewards: Vec<f32> = outcomes.iter().map(|outcome| outcome.reward + 0.0).collect(); // −0 is 0
        rewards.sort_by(f32::total_cmp);
        rewards.dedup();
        let level = |outcome: &Outcome| rewards.partition_point(|&reward| reward < outcome.reward);
        Self { levels: outcomes.iter().map(level).collect(), num_levels: rewards.len(), outcomes }
    }

    fn histogram(&self) -> Histogram {
        let mut histogram = vec![[0; 2]; self.num_levels];
        self.outcomes.iter().zip(&self.levels).for_each(|(outcome, &level)| {
            histogram[level][usize::from(outcome.is_true)] += 1;
        });
        histogram
    }

    /// Histograms of as many questions, drawn with replacement.
    fn draws(&self, seed: u64) -> impl Iterator<Item = Histogram> {
        let pairs: Vec<(&Outcome, usize)> =
            self.outcomes.iter().zip(self.levels.iter().copied()).collect();
        let questions: Vec<Vec<(usize, usize)>> = pairs
            .chunk_by(|one, other| one.0.question == other.0.question)
            .map(|own| {
                own.iter().map(|(outcome, level)| (*level, usize::from(outcome.is_true))).collect()
            })
            .collect();
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        (0..DRAWS).map(move |_| {
            let mut histogram = vec![[0; 2]; self.num_levels];
            for _ in 0..questions.len() {
                let drawn = &questions[rng.random_range(0..questions.len())];
                drawn.iter().for_each(|&(level, is_true)| histogram[level][is_true] += 1);
            }
            histogram
        })
    }
}

/// See [`Auc`]; `None` unless there are true sentences and false ones. `seed` decides the draws of
/// the interval.
#[must_use]
pub fn auc(outcomes: &[Outcome], seed: u64) -> Option<Auc> {
    let ranking = Ranking::of(outcomes);
    let value = area(&ranking.histogram())?;
    let draws = || ranking.draws(seed).filter_map(|histogram| area(&histogram));
    Some(Auc { value, interval: Evidence::of(outcomes).is_enough().then(|| Interval::of(draws())) })
}

/// The same over the pairs of sentences that answer one question, which are what GRPO compares;
/// `None` where no question has a true sentence and a false one.
#[must_use]
pub fn auc_within_questions(outcomes: &[Outcome], seed: u64) -> Option<Auc> {
    let ranking = Ranking::of(outcomes);
    let of_question = |own: &[Outcome]| {
        let histogram = Ranking::of(own).histogram();
        let [falsehoods, truths] = totals(&histogram);
        area(&histogram).map(|area| (area * falsehoods * truths, falsehoods * truths))
    };
    let (mut questions, mut compared) = (Vec::new(), Vec::new());
    for own in ranking.outcomes.chunk_by(|one, other| one.question == other.question) {
        if let Some(won_and_pairs) = of_question(own) {
            questions.push(won_and_pairs);
            compared.extend_from_slice(own);
        }
    }
    if questions.is_empty() {
        return None;
    }
    let share = |drawn: &mut dyn Iterator<Item = &(f64, f64)>| {
        let (won, pairs) = drawn.fold((0.0, 0.0), |sum, own| (sum.0 + own.0, sum.1 + own.1));
        won / pairs
    };
    let interval = || {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut draw = || &questions[rng.random_range(0..questions.len())];
        Interval::of((0..DRAWS).map(|_| share(&mut (0..questions.len()).map(|_| draw()))))
    };
    let value = share(&mut questions.iter());
    Some(Auc { value, interval: Evidence::of(&compared).is_enough().then(interval) })
}

impl Interval {
    fn of(draws: impl Iterator<Item = f64>) -> Self {
        let mut drawn: Vec<f64> = draws.collect();
        drawn.sort_by(f64::total_cmp);
        let cut = (TAIL * drawn.len() as f64) as usize;
        let (low, high) = match drawn.as_slice() {
            [] => (0.0, 1.0),
            drawn => (drawn[cut], drawn[drawn.len() - 1 - cut]),
        };
        Self { low, high }
    }
}

fn area(histogram: &[[u64; 2]]) -> Option<f64> {
    let totals = totals(histogram);
    let mut falsehoods_below = 0.0;
    let mut won = 0.0;
    for [falsehoods, truths] in histogram.iter().map(|level| level.map(|number| number as f64)) {
        won += truths * (falsehoods_below + falsehoods / 2.0);
        falsehoods_below += falsehoods;
    }
    let pairs = totals[0] * totals[1];
    (pairs > 0.0).then(|| won / pairs)
}

fn totals(histogram: &[[u64; 2]]) -> [f64; 2] {
    [0, 1].map(|which| histogram.iter().map(|level| level[which]).sum::<u64>() as f64)
}

/// Spearman's ρ of reward and truth, ties at their mean rank; `None` where all rewards or all
/// truths are the same.
#[must_use]
pub fn rank_correlation(outcomes: &[Outcome]) -> Option<f64> {
    let histogram = Ranking::of(outcomes).histogram();
    let [falsehoods, truths] = totals(&histogram);
    let mean_rank = (falsehoods + truths + 1.0) / 2.0;
    let (mut below, mut covariance, mut variance) = (0.0, 0.0, 0.0);
    for [false_here, true_here] in histogram.iter().map(|level| level.map(|number| number as f64)) {
        let number = false_here + true_here;
        let from_mean = below + (number + 1.0) / 2.0 - mean_rank;
        covariance += true_here * from_mean;
        variance += number * from_mean * from_mean;
        below += number;
    }
    let of_truth = falsehoods * truths / (falsehoods + truths);
    let product = variance * of_truth;
    (product > 0.0).then(|| covariance / product.sqrt())
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One sentence of each question.
    pub fn outcomes(all: &[(f32, bool)]) -> Vec<Outcome> {
        let outcome = |(question, &(reward, is_true)): (usize, &(f32, bool))| Outcome {
            question,
            reward,
            is_true,
        };
        all.iter().enumerate().map(outcome).collect()
    }

    fn value(all: &[(f32, bool)]) -> Option<f64> {
        auc(&outcomes(all), 1).map(|auc| auc.value)
    }

    #[test]
    fn auc_counts_correctly_ordered_pairs() {
        assert_eq!(value(&[(0.1, true), (-0.3, false)]), Some(1.0));
        assert_eq!(value(&[(-0.3, true), (0.1, false)]), Some(0.0));
        assert_eq!(value(&[(0.0, true), (-0.0, false)]), Some(0.5));
        // Of six pairs 0.1 > 0.0 twice, 0.1 = 0.1 once, −0.3 < twice, −0.3 < once.
        let mixed = [(0.1, true), (-0.3, true), (0.0, false), (0.0, false), (0.1, false)];
        assert_eq!(value(&mixed), Some(2.5 / 6.0));
        assert_eq!(value(&[(0.1, true)]), None);
        assert_eq!(value(&[]), None);
    }

    #[test]
    fn auc_within_questions_ignores_question_difficulty() {
        // Famous questions earn more and are answered right more often; within a question, the
        // false sentence earns more.
        let famous = [(0.1, true), (0.1, true), (0.2, false)].map(|(reward, is_true)| Outcome {
            question: 1,
            reward,
            is_true,
        });
        let obscure = [(-0.3, true), (-0.2, false), (-0.2, false)]
            .map(|(reward, is_true)| Outcome { question: 2, reward, is_true });
        let all = [famous, obscure].concat();
        assert!(auc(&all, 1).unwrap().value > auc_within_questions(&all, 1).unwrap().value);
        assert_eq!(auc_within_questions(&all, 1), Some(Auc { value: 0.0, interval: None }));
        assert_eq!(auc_within_questions(&outcomes(&[(0.1, true), (0.0, false)]), 1), None);
    }

    #[test]
    fn constant_reward_has_auc_one_half() {
        let all = outcomes(&[(0.1, true), (0.1, false)].repeat(30));
        assert_eq!(
            auc(&all, 1),
            Some(Auc { value: 0.5, interval: Some(Interval { low: 0.5, high: 0.5 }) })
        );
        assert_eq!(rank_correlation(&all), None);
    }

    #[test]
    fn rank_correlation_matches_known_value() {
        let all = [
            (0.1, true),
            (-0.3, false),
            (0.0, true),
            (0.1, false),
            (-0.1, false),
            (0.1, true),
            (-0.3, true),
        ];
        let rho = rank_correlation(&outcomes(&all)).unwrap();
        assert!((rho - 0.226_871).abs() < 1e-6, "{rho}"); // Pearson of the ranks, in Python
        assert_eq!(rank_correlation(&outcomes(&[(1.0, true), (0.0, false)])), Some(1.0));
    }

    #[test]
    fn auc_interval_accounts_for_question_clusters() {
        let independent: Vec<(f32, bool)> =
            (0..400).map(|n| (if n % 5 < 3 { 0.1 } else { -0.3 }, n % 2 == 0)).collect();
        let alone = auc(&outcomes(&independent), 1).unwrap();
        let mut together = outcomes(&independent);
        together.iter_mut().enumerate().for_each(|(n, outcome)| outcome.question = n / 20);
        // Twenty times the same sentence is one sentence.
        let of_question = |n: usize| (if n.is_multiple_of(4) { -0.3 } else { 0.1 }, n % 2 == 1);
        together
            .iter_mut()
            .for_each(|outcome| (outcome.reward, outcome.is_true) = of_question(outcome.question));
        let together = auc(&together, 1).unwrap();
        let Interval { low, high } = alone.interval.unwrap();
        assert!(low < alone.value && alone.value < high, "{alone:?}");
        let wide = together.interval.unwrap();
        assert!(wide.high - wide.low > 3.0 * (high - low), "{alone:?} {together:?}");
        assert_eq!(auc(&outcomes(&independent), 1), Some(alone));
    }

    #[test]
    fn auc_of_two_sentences_has_no_interval() {
        let two = auc(&outcomes(&[(0.1, true), (-0.3, false)]), 1).unwrap();
        assert_eq!(
            (two, two.to_string()),
            (Auc { value: 1.0, interval: None }, "1.000 (too few)".into())
        );
    }

    #[test]
    fn auc_interval_needs_thirty_sentences_from_ten_questions() {
        let is_enough = |each: usize, questions: usize| {
            let mut all = outcomes(&[(0.1, true), (-0.3, false)].repeat(each));
            all.iter_mut()
                .enumerate()
                .for_each(|(n, outcome)| outcome.question = n / 2 % questions);
            let intervals = [auc(&all, 1), auc_within_questions(&all, 1)]
                .map(|auc| auc.unwrap().interval.is_some());
            assert_eq!(intervals, [Evidence::of(&all).is_enough(); 2]);
            intervals[0]
        };
        assert_eq!([is_enough(30, 10), is_enough(29, 10), is_enough(30, 9)], [true, false, false]);
        let mut one_sided = outcomes(&[(0.1, true), (-0.3, false)].repeat(30));
        one_sided
            .iter_mut()
            .filter(|outcome| outcome.is_true)
            .for_each(|outcome| outcome.question = 0);
        let Evidence { truths, questions_with_truths, falsehoods, questions_with_falsehoods } =
            Evidence::of(&one_sided);
        assert_eq!(
            (truths, questions_with_truths, falsehoods, questions_with_falsehoods),
            (30, 1, 30, 30)
        );
        assert_eq!(auc(&one_sided, 1).unwrap().interval, None);
    }

    proptest! {
        #[test]
        fn auc_matches_brute_force_pairs(all in prop::collection::vec((-2i8..3, any::<bool>()), 0..30)) {
            let all: Vec<(f32, bool)> = all.into_iter().map(|(reward, is_true)| (f32::from(reward), is_true)).collect();
            let of = |wanted: bool| all.iter().filter(move |(_, is_true)| *is_true == wanted).map(|(reward, _)| *reward);
            let pairs: Vec<f64> = of(true)
                .flat_map(|truth| of(false).map(move |other| if truth > other { 1.0 } else if truth == other { 0.5 } else { 0.0 }))
                .collect();
            let expected = (!pairs.is_empty()).then(|| pairs.iter().sum::<f64>() / pairs.len() as f64);
            let got = area(&Ranking::of(&outcomes(&all)).histogram());
            prop_assert_eq!(got.is_some(), expected.is_some());
            if let (Some(got), Some(expected)) = (got, expected) {
                prop_assert!((got - expected).abs() < 1e-12);
            }
        }
    }
}
